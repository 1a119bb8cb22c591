{{/* Names, labels, images. */}}
{{- define "sutler.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "sutler.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "sutler.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sutler.selector" -}}
app.kubernetes.io/name: {{ include "sutler.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sutler.labels" -}}
{{ include "sutler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "sutler.serviceAccount" -}}
{{- $made := include "sutler.fullname" . -}}
{{- .Values.serviceAccount.name | default (ternary $made "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "sutler.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether somebody may use the operators' listener; "" where nobody does. */}}
{{- define "sutler.operators" -}}
{{- with .Values.access -}}
{{- if or .operators (and .secret.name .secret.operatorsKey) -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sutler.pluginFolder" -}}
{{- with .Values.plugins -}}
{{- if eq .source "shipped" -}}
/usr/lib/sutler/plugins
{{- else if and (eq .source "image") (eq .image.mount "volume") -}}
/plugins{{ .image.path }}
{{- else -}}
/plugins
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sutler.kind" -}}
{{- ternary "StatefulSet" "Deployment" (eq .Values.ledger.type "sqlite") -}}
{{- end -}}

{{/* On the claim where there is one: what was compiled once is there for the next pod. */}}
{{- define "sutler.cache" -}}
{{- ternary "/var/lib/sutler/cache" "/var/cache/sutler/host" (eq (include "sutler.claimed" .) "yes") -}}
{{- end -}}

{{- define "sutler.claimed" -}}
{{- if and (eq .Values.ledger.type "sqlite") .Values.persistence.enabled -}}yes{{- end -}}
{{- end -}}

{{/* What a container of this pod may do: nothing beyond its own processes. */}}
{{- define "sutler.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
