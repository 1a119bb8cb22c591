{{/* The keys of sutler.toml that follow from the pod. The environment goes over the file. */}}
{{- define "sutler.environment" -}}
- { name: SUTLER_CONFIG, value: /etc/sutler/sutler.toml }
- { name: SUTLER__SERVER__LISTEN, value: "0.0.0.0:8080" }
- { name: SUTLER__SERVER__ADMIN_LISTEN, value: {{ ternary "0.0.0.0" "127.0.0.1" (eq (include "sutler.operators" .) "yes") }}:8081 }
- { name: SUTLER__CATALOG__DIR, value: {{ include "sutler.pluginFolder" . }} }
- { name: SUTLER__CACHE__DIR, value: {{ include "sutler.cache" . }} }
- { name: SUTLER__API__SHUTDOWN_GRACE_SECONDS, value: {{ .Values.shutdownGraceSeconds | quote }} }
- { name: SUTLER__LOG__FORMAT, value: {{ .Values.log.format }} }
- { name: SUTLER__LOG__LEVEL, value: {{ .Values.log.level | quote }} }
{{- with .Values.access.secret }}
{{- if .name }}
{{ include "sutler.secretVariable" (list "SUTLER__ACCESS__CALLERS" .name .callersKey) }}
{{- if .operatorsKey }}
{{ include "sutler.secretVariable" (list "SUTLER__ACCESS__OPERATORS" .name .operatorsKey) }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.ledger }}
{{- if eq .type "postgres" }}
{{ include "sutler.secretVariable" (list "SUTLER__LEDGER__URL" .urlSecret.name .urlSecret.key) }}
{{- if .caSecret.name }}
- { name: SUTLER__LEDGER__CA_FILE, value: /run/sutler/ledger-ca/{{ .caSecret.key }} }
{{- end }}
{{- else }}
- { name: SUTLER__LEDGER__PATH, value: /var/lib/sutler/ledger.db }
{{- end }}
{{- if .keySecret.name }}
- { name: SUTLER__LEDGER__KEY_FILE, value: /run/sutler/ledger-key/{{ .keySecret.key }} }
{{- end }}
{{- end }}
{{- with .Values.tls }}
{{- if .secretName }}
- { name: SUTLER__SERVER__TLS__CERTIFICATE, value: /run/sutler/tls/tls.crt }
- { name: SUTLER__SERVER__TLS__KEY, value: /run/sutler/tls/tls.key }
{{- if .clientCa }}
- { name: SUTLER__SERVER__TLS__CLIENT_CA, value: /run/sutler/tls/ca.crt }
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sutler.secretVariable" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef: { name: {{ index . 1 }}, key: {{ index . 2 }} }
{{- end -}}
