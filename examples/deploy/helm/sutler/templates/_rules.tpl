{{/* What `sutler rbac print` says of the grants in _config.tpl. A test compares the two. */}}

{{/* apps/StatefulSet: its group and, by the rule that kubectl goes by where it cannot ask, its resource. */}}
{{- define "sutler.rule" -}}
{{- $parts := splitList "/" . -}}
{{- $kind := last $parts | lower -}}
{{- $resource := printf "%ss" $kind -}}
{{- if eq $kind "endpoints" -}}
{{- $resource = $kind -}}
{{- else if hasSuffix "s" $kind -}}
{{- $resource = printf "%ses" $kind -}}
{{- else if hasSuffix "y" $kind -}}
{{- $resource = printf "%sies" (trimSuffix "y" $kind) -}}
{{- end -}}
- apiGroups: [{{ initial $parts | join "/" | quote }}]
  resources: [{{ $resource }}]
  verbs: [get, list, watch, create, update, patch, delete]
{{- end -}}

{{- define "sutler.rules.ksml" -}}
{{- range .kinds }}
{{ include "sutler.rule" . }}
{{- end }}
# Helm's records and Kafka's passwords.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, update, patch, delete]
{{ include "sutler.rules.logs" (dict "anyOwner" true) }}
# Whose a pod is follows from what made it.
- apiGroups: [apps]
  resources: [daemonsets, deployments, replicasets, statefulsets]
  verbs: [get]
- apiGroups: [batch]
  resources: [cronjobs, jobs]
  verbs: [get]
# What a hook wrote is told where it failed.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [list]
{{- end -}}

{{- define "sutler.rules.logs" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- if not .anyOwner }}
- apiGroups: [apps]
  resources: [daemonsets, deployments, replicasets, statefulsets]
  verbs: [get]
- apiGroups: [batch]
  resources: [cronjobs, jobs]
  verbs: [get]
- apiGroups: [""]
  resources: [secrets]
  verbs: [list]
{{- end }}
{{- end -}}
