{{/* Names and labels. */}}
{{- define "veilset.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "veilset.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "veilset.labels" -}}
{{ include "veilset.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "veilset.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "veilset.fullname" .) -}}
{{- end -}}

{{/* Arguments of `veilset serve`. */}}
{{- define "veilset.args" -}}
- serve
- --host=0.0.0.0
- --port=50051
- --redis-file=/etc/veilset/redis-url/url
{{- if .Values.insecure }}
- --insecure
{{- else }}
- --tls-cert=/etc/veilset/tls/tls.crt
- --tls-key=/etc/veilset/tls/tls.key
{{- if .Values.tls.clientCertificates }}
- --client-ca=/etc/veilset/tls/ca.crt
{{- end }}
{{- end }}
{{- with .Values.serve }}
- --auth={{ .auth }}
- --keep-releases={{ int .keepReleases }}
- --grace-seconds={{ int .graceSeconds }}
- --reconcile-seconds={{ .reconcileSeconds }}
- --idle-seconds={{ .idleSeconds }}
- --shutdown-delay-seconds={{ .shutdownDelaySeconds }}
- --drain-seconds={{ .drainSeconds }}
- --log-level={{ .logLevel }}
{{- if .identitiesConfigMap }}
- --identities=/etc/veilset/identities/identities.toml
{{- end }}
{{- end }}
{{- if .Values.metrics.enabled }}
- --metrics-host=0.0.0.0
- --metrics-port={{ int .Values.metrics.port }}
- --metrics-max-sets={{ int .Values.metrics.maxSets }}
{{- end }}
{{- with .Values.tracing.endpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- with .Values.serve.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Kubernetes' own gRPC probes speak no TLS, so with it the service's command asks. */}}
{{- define "veilset.probe" -}}
{{- if .Values.insecure }}
grpc:
  port: 50051
{{- else }}
exec:
  command: [veilset, health]
{{- end }}
{{- end -}}
