{{/* What the host writes (ledger, cache, /tmp), and what it reads. The root file system is read-only. */}}
{{- define "sutler.mounts" -}}
- { name: config, mountPath: /etc/sutler, readOnly: true }
{{- if not (include "sutler.claimed" .) }}
- { name: cache, mountPath: /var/cache/sutler }
{{- end }}
- { name: tmp, mountPath: /tmp }
{{- if eq .Values.ledger.type "sqlite" }}
- { name: state, mountPath: /var/lib/sutler }
{{- end }}
{{- if ne .Values.plugins.source "shipped" }}
- { name: plugins, mountPath: /plugins, readOnly: true }
{{- end }}
{{- if .Values.ledger.keySecret.name }}
- { name: ledger-key, mountPath: /run/sutler/ledger-key, readOnly: true }
{{- end }}
{{- if and (eq .Values.ledger.type "postgres") .Values.ledger.caSecret.name }}
- { name: ledger-ca, mountPath: /run/sutler/ledger-ca, readOnly: true }
{{- end }}
{{- if .Values.tls.secretName }}
- { name: tls, mountPath: /run/sutler/tls, readOnly: true }
{{- end }}
{{- range .Values.secretFiles }}
- { name: secret-{{ .name }}, mountPath: /run/sutler/secrets/{{ .name }}, readOnly: true }
{{- end }}
{{- end -}}

{{- define "sutler.volumes" -}}
- name: config
  configMap:
    name: {{ include "sutler.fullname" . }}
{{- if not (include "sutler.claimed" .) }}
- name: cache
  emptyDir:
    sizeLimit: {{ .Values.cache.sizeLimit }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.cache.sizeLimit }}
{{- if eq .Values.ledger.type "sqlite" }}
- name: state
  {{- if .Values.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim | default (include "sutler.fullname" .) }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- with .Values.plugins }}
{{- if eq .source "volume" }}
- name: plugins
  {{- toYaml .volume | nindent 2 }}
{{- else if and (eq .source "image") (eq .image.mount "volume") }}
- name: plugins
  image:
    reference: {{ .image.reference }}
    pullPolicy: {{ $.Values.image.pullPolicy }}
{{- else if eq .source "image" }}
- name: plugins
  emptyDir: {}
{{- end }}
{{- end }}
{{- with .Values.ledger }}
{{- if .keySecret.name }}
{{ include "sutler.secretVolume" (list "ledger-key" .keySecret.name) }}
{{- end }}
{{- if and (eq .type "postgres") .caSecret.name }}
{{ include "sutler.secretVolume" (list "ledger-ca" .caSecret.name) }}
{{- end }}
{{- end }}
{{- with .Values.tls.secretName }}
{{ include "sutler.secretVolume" (list "tls" .) }}
{{- end }}
{{- range .Values.secretFiles }}
{{ include "sutler.secretVolume" (list (printf "secret-%s" .name) .secretName) }}
{{- end }}
{{- end -}}

{{/* Of root, readable by the pod's group alone. */}}
{{- define "sutler.secretVolume" -}}
- name: {{ index . 0 }}
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
{{- end -}}
