{{/* Names and labels. */}}

{{- define "potstill.name" -}}
{{- if contains "potstill" .Release.Name -}}
{{ .Release.Name | trunc 24 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-potstill" (.Release.Name | trunc 15 | trimSuffix "-") }}
{{- end -}}
{{- end -}}

{{- define "potstill.selector" -}}
app.kubernetes.io/name: potstill
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "potstill.labels" -}}
{{ include "potstill.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* An image of ours, by name. Takes (dict "root" $ "name" "student-cpu"). */}}
{{- define "potstill.image" -}}
{{- $parts := regexSplit "-(cpu|cuda)$" .name -1 -}}
{{- $repository := printf "%s/%s" .root.Values.images.prefix (first $parts) -}}
{{- $variant := trimPrefix (first $parts) .name -}}
{{- $digest := get .root.Values.images.digests .name -}}
{{- if $digest -}}
{{ $repository }}@{{ $digest }}
{{- else -}}
{{ $repository }}:{{ .root.Values.images.tag | default .root.Chart.AppVersion }}{{ $variant }}
{{- end -}}
{{- end -}}

{{- define "potstill.redisHost" -}}
{{- .Values.externalRedis.host | default (printf "%s-valkey" (include "potstill.name" .)) -}}
{{- end -}}

{{- define "potstill.redisPort" -}}
{{- if .Values.externalRedis.host }}{{ .Values.externalRedis.port }}{{ else }}6379{{ end -}}
{{- end -}}

{{- define "potstill.artifactsClaim" -}}
{{- .Values.artifacts.existingClaim | default (printf "%s-artifacts" (include "potstill.name" .)) -}}
{{- end -}}

{{/* name=url,name=url of all teachers. */}}
{{- define "potstill.teacherUrls" -}}
{{- $urls := list -}}
{{- range $name, $_ := .Values.teachers -}}
{{- $urls = append $urls (printf "%s=http://%s-teacher-%s:8080" $name (include "potstill.name" $) $name) -}}
{{- end -}}
{{- join "," $urls -}}
{{- end -}}
