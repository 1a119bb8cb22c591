{{/* Names and labels. */}}
{{- define "ksml.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's name, with the chart's where it is not in it: at most 52 characters, for a StatefulSet's pods. */}}
{{- define "ksml.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "ksml.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ksml.selector" -}}
app.kubernetes.io/name: {{ include "ksml.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ksml.labels" -}}
{{ include "ksml.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.deploymentMode | camelcase | lower }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "ksml.serviceAccount" -}}
{{- $made := include "ksml.fullname" . -}}
{{- .Values.serviceAccount.name | default (ternary $made "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "ksml.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion | toString -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}
