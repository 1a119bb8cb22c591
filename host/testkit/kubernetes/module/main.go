// One binary with every part of a Kubernetes control plane and node, its client and Helm, so that tests
// have a real cluster of pinned versions from the Go module proxy alone.
//
// It goes by the name it is called under (a link kube-apiserver), or by its first word:
// kubernetes etcd|apiserver|controller-manager|scheduler|kubelet|proxy|kubectl|helm [flags].
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	helmkube "helm.sh/helm/v4/pkg/kube"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { serve(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { serve(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { serve(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { serve(kubelet.NewKubeletCommand(context.Background())) },
	"kube-proxy":              func() { serve(proxy.NewProxyCommand()) },
	"kubectl":                 runKubectl,
	"helm":                    runHelm,
}

func serve(command *cobra.Command) { os.Exit(cli.Run(command)) }

func runKubectl() {
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

func runHelm() {
	// Without this the field manager would be the binary's name.
	helmkube.ManagedFieldsManager = "helm"
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	if coded, ok := errors.AsType[helm.CommandError](err); ok {
		os.Exit(coded.ExitCode)
	}
	if err != nil {
		os.Exit(1)
	}
}

func main() {
	part, found := parts[filepath.Base(os.Args[0])]
	if !found && len(os.Args) > 1 {
		name := os.Args[1]
		if part, found = parts[name]; !found {
			name = "kube-" + name
			part, found = parts[name]
		}
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	if !found {
		fmt.Fprintln(os.Stderr, "usage: kubernetes etcd|apiserver|controller-manager|scheduler|kubelet|proxy|kubectl|helm [flags]")
		os.Exit(2)
	}
	part()
}
