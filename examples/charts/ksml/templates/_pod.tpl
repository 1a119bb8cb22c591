{{/* One HTTP probe: (dict "probe" values "port" name). */}}
{{- define "ksml.probe" -}}
{{- $probe := deepCopy .probe -}}
httpGet:
  path: {{ $probe.path }}
  port: {{ .port }}
{{ toYaml (omit $probe "path") }}
{{- end -}}

{{/* The pod's template, the same for every mode. */}}
{{- define "ksml.pod" -}}
{{- $full := include "ksml.fullname" . -}}
{{- $job := eq .Values.deploymentMode "Job" -}}
metadata:
  annotations:
    checksum/definitions: {{ include (print $.Template.BasePath "/configmap-definitions.yaml") . | sha256sum }}
    checksum/runner: {{ include (print $.Template.BasePath "/configmap-runner.yaml") . | sha256sum }}
    checksum/logging: {{ include (print $.Template.BasePath "/configmap-logging.yaml") . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "ksml.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if and $job .Values.job.pod.finalizers }}
  finalizers:
    {{- toYaml .Values.job.pod.finalizers | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "ksml.serviceAccount" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automount }}
  restartPolicy: {{ ternary "Never" "Always" $job }}
  terminationGracePeriodSeconds: 5
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: ksml
      image: {{ include "ksml.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - /ksml/config/ksml-runner.yaml
      env:
        - name: KSML_PORT
          value: {{ .Values.applicationServer.port | quote }}
        - name: KSML_DEFINITIONS
          value: {{ .Values.ksmlRunnerConfig.definitionDirectory | quote }}
        {{- if $job }}
        - name: KSML_RUN_SECONDS
          value: "5"
        {{- end }}
      {{- with .Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- if .Values.applicationServer.enabled }}
        - name: http
          containerPort: {{ .Values.applicationServer.port | int }}
        {{- end }}
        {{- if .Values.prometheus.enabled }}
        - name: metrics
          containerPort: {{ .Values.prometheus.port | int }}
        {{- end }}
      {{- if and .Values.applicationServer.enabled (not $job) }}
      startupProbe:
        {{- include "ksml.probe" (dict "probe" .Values.startupProbe "port" "http") | nindent 8 }}
      readinessProbe:
        {{- include "ksml.probe" (dict "probe" .Values.readinessProbe "port" "http") | nindent 8 }}
      livenessProbe:
        {{- include "ksml.probe" (dict "probe" .Values.livenessProbe "port" "http") | nindent 8 }}
      {{- end }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: runner
          mountPath: /ksml/config
          readOnly: true
        - name: definitions
          mountPath: {{ .Values.ksmlRunnerConfig.definitionDirectory }}
          readOnly: true
        {{- if .Values.schemaDefinitions }}
        - name: schemas
          mountPath: {{ .Values.ksmlRunnerConfig.schemaDirectory }}
          readOnly: true
        {{- end }}
        - name: logging
          mountPath: /ksml/logging
          readOnly: true
        - name: store
          mountPath: {{ .Values.ksmlRunnerConfig.storageDirectory }}
        {{- with .Values.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: runner
      configMap:
        name: {{ $full }}-runner
    - name: definitions
      configMap:
        name: {{ $full }}-definitions
    {{- if .Values.schemaDefinitions }}
    - name: schemas
      configMap:
        name: {{ $full }}-schemas
    {{- end }}
    - name: logging
      configMap:
        name: {{ $full }}-logging
    {{- if or (ne .Values.deploymentMode "StatefulSet") (not .Values.store.spec) }}
    - name: store
      emptyDir: {}
    {{- end }}
    {{- with .Values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
