module sutler/ksml-runner

go 1.25
