{{/* sutler.toml: the grants that belong to the roles, then the operator's own. Strings and lists of strings are the
same in JSON and in TOML. */}}
{{- define "sutler.config" -}}
{{- if regexMatch "(?m)^\\s*(password|token)\\s*=" .Values.config -}}
{{- fail "config: a password or token stands in plain, and a ConfigMap is no place for it; mount a Secret with secretFiles and name the file (password-file = \"/run/sutler/secrets/NAME/KEY\"), or set the key by env with a secretKeyRef" -}}
{{- end -}}
{{- if regexMatch "postgres(ql)?://" .Values.config -}}
{{- fail "config: the address of the PostgreSQL server comes from a Secret; set ledger.type=postgres and ledger.urlSecret.name" -}}
{{- end -}}
{{- if not (regexMatch "^(\\s*(#[^\n]*)?\n)*\\s*(\\[|$)" .Values.config) -}}
{{- fail "config: it is appended to tables, so it has to begin with one ([NAME])" -}}
{{- end -}}
[kubernetes]
{{- with .Values.access }}
{{- range .callers }}

[[access.callers]]
name = {{ .name | toJson }}
token-hash = {{ .tokenHash | toJson }}
tenants = {{ .tenants | default list | toJson }}
instances = {{ .instances | default list | toJson }}
audit = {{ .audit | default false }}
{{- with .maxRequests }}
max-requests = {{ . }}
{{- end }}
{{- with .maxLogStreams }}
max-log-streams = {{ . }}
{{- end }}
{{- end }}
{{- range .operators }}

[[access.operators]]
name = {{ .name | toJson }}
token-hash = {{ .tokenHash | toJson }}
audit = {{ .audit | default false }}
{{- end }}
{{- end }}
{{- with .Values.ksml }}
{{- if .enabled }}

[plugins.ksml.config]
chart = {{ .chart | toJson }}
{{- with .version }}
version = {{ . | toJson }}
{{- end }}
{{- with .image }}
image = {{ . | toJson }}
{{- end }}
namespace = {{ .namespace | toJson }}

[plugins.ksml.grants.helm]
charts = [{{ .chart | toJson }}]
namespaces = {{ .namespaces | toJson }}
kinds = {{ .kinds | toJson }}

[[plugins.ksml.grants.kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["Secret"]
namespaces = {{ .namespaces | toJson }}

[plugins.ksml.grants.logs]
namespaces = {{ .namespaces | toJson }}
{{- end }}
{{- end }}
{{- with .Values.logs }}
{{- if .enabled }}

[plugins.{{ .plugin | toJson }}.grants.logs]
namespaces = {{ .namespaces | toJson }}
any-owner = {{ .anyOwner }}
{{- end }}
{{- end }}
{{- with .Values.config }}

{{ . | trim }}
{{- end }}
{{- end -}}
