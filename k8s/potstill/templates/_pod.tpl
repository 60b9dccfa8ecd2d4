{{/* The parts that all pods share. */}}

{{/* Seconds between asking a pod to end and killing it. */}}
{{- define "potstill.grace" -}}
{{- $needed := add .Values.preStopSeconds .Values.drainSeconds -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{ add $needed 10 }}
{{- else -}}
{{- if lt (int $given) (int $needed) -}}
{{- fail (printf "terminationGracePeriodSeconds %d is less than preStopSeconds %d + drainSeconds %d: requests in flight would be cut off. Raise it to %d or more, or leave it empty" (int $given) (int .Values.preStopSeconds) (int .Values.drainSeconds) $needed) -}}
{{- end -}}
{{ int $given }}
{{- end -}}
{{- end -}}

{{/* Takes (dict "root" $ "component" "student" "lane" "default" "teacher" "maths"); lane and teacher where there is one. */}}
{{- define "potstill.podSelector" -}}
{{ include "potstill.selector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .lane }}
potstill/lane: {{ . | quote }}
{{- end }}
{{- with .teacher }}
potstill/teacher: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "potstill.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "potstill.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Placement. Takes the dict of podSelector with "values" (of the component), "spread" and "artifacts" (whether it mounts them). */}}
{{- define "potstill.placement" -}}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if and .spread .root.Values.topologySpread.enabled }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ .root.Values.topologySpread.topologyKey }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "potstill.podSelector" . | nindent 8 }}
{{- end }}
{{- if and .artifacts (eq .root.Values.artifacts.accessMode "ReadWriteOnce") }}
affinity:
  podAffinity:
    # One node has the volume: whoever mounts it goes where the first went.
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "potstill.selector" .root | nindent 12 }}
            potstill/artifacts: "true"
{{- end }}
{{- end -}}

{{- define "potstill.tokenEnvironment" -}}
- name: POTSTILL_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.secret.existing }}, key: {{ .Values.secret.tokenKey }}}}
{{- end -}}

{{- define "potstill.environment" -}}
{{ include "potstill.tokenEnvironment" . }}
- {name: POTSTILL_DRAIN_SECONDS, value: {{ .Values.drainSeconds | quote }}}
- {name: POTSTILL_LOG_LEVEL, value: {{ .Values.logLevel }}}
{{- end -}}

{{- define "potstill.queueEnvironment" -}}
- name: VALKEY_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.secret.existing }}, key: {{ .Values.secret.passwordKey }}}}
- name: POTSTILL_REDIS_URL
  value: {{ printf "%s://%s:$(VALKEY_PASSWORD)@%s:%s/%d" (ternary "rediss" "redis" .Values.externalRedis.tls) (ternary .Values.externalRedis.username "" (ne .Values.externalRedis.host "")) (include "potstill.redisHost" .) (include "potstill.redisPort" .) (ternary (int .Values.externalRedis.database) 0 (ne .Values.externalRedis.host "")) }}
{{- end -}}

{{/* Takes (dict "root" $ "lane" name). */}}
{{- define "potstill.peersEnvironment" -}}
- {name: POTSTILL_STUDENT_URL, value: "http://{{ include "potstill.name" .root }}-student-{{ .lane }}:8080"}
- {name: POTSTILL_TEACHERS, value: {{ include "potstill.teacherUrls" .root | quote }}}
- {name: POTSTILL_VERIFIER_URL, value: "http://{{ include "potstill.name" .root }}-verifier:8080"}
{{- end -}}

{{- define "potstill.modelEnvironment" -}}
- {name: HF_HOME, value: /models/hub}
{{- if not .Values.models.hub }}
- {name: HF_HUB_OFFLINE, value: "1"}
{{- end }}
{{- if and .Values.models.hub .Values.secret.hubTokenKey }}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.secret.existing }}, key: {{ .Values.secret.hubTokenKey }}}}
{{- end }}
{{- end -}}

{{- define "potstill.settings" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* Takes a component's values. */}}
{{- define "potstill.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- if .gpus -}}
{{- $limits := get $resources "limits" | default dict -}}
{{- $_ := set $limits "nvidia.com/gpu" (.gpus | toString) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{ toYaml $resources }}
{{- end -}}

{{/* Processes of a learner on one node. */}}
{{- define "potstill.learnerProcesses" -}}
{{- with .Values.learner -}}
{{ ternary (int .processesPerNode) (max 1 (int .gpus)) (gt (int .processesPerNode) 0) }}
{{- end -}}
{{- end -}}

{{/* Ports, probes and the way to end. Takes (dict "root" $ "startup" path "seconds" 600). */}}
{{- define "potstill.lifecycle" -}}
ports: [{name: http, containerPort: 8080}]
startupProbe:
  httpGet: {path: {{ .startup }}, port: http}
  periodSeconds: 10
  timeoutSeconds: 25
  failureThreshold: {{ max 1 (ceil (divf .seconds 10)) }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 10
  timeoutSeconds: 20
livenessProbe:
  # The process itself gives its engine 20 s to answer.
  httpGet: {path: /livez, port: http}
  periodSeconds: 30
  timeoutSeconds: 25
  failureThreshold: 3
{{- if gt (int .root.Values.preStopSeconds) 0 }}{{/* Kubernetes before 1.34 takes no sleep of 0. */}}
lifecycle:
  preStop: {sleep: {seconds: {{ .root.Values.preStopSeconds }}}}
{{- end }}
{{- end -}}

{{/* Takes (dict "root" $ "gpus" n "artifacts" ""|ro|rw "models" bool "data" bool). */}}
{{- define "potstill.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .gpus }}
- {name: shm, mountPath: /dev/shm}
{{- end }}
{{- if .artifacts }}
- {name: artifacts, mountPath: /artifacts, readOnly: {{ eq .artifacts "ro" }}}
{{- end }}
{{- if .models }}
- {name: models, mountPath: /models, readOnly: {{ not .root.Values.models.hub }}}
{{- end }}
{{- if and .data .root.Values.data.existingClaim }}
- {name: data, mountPath: /data, readOnly: true}
{{- end }}
{{- end -}}

{{- define "potstill.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- if .gpus }}
- {name: shm, emptyDir: {medium: Memory}}
{{- end }}
{{- if .artifacts }}
- {name: artifacts, persistentVolumeClaim: {claimName: {{ include "potstill.artifactsClaim" .root }}}}
{{- end }}
{{- if .models }}
{{- with .root.Values.models.existingClaim }}
- {name: models, persistentVolumeClaim: {claimName: {{ . }}}}
{{- else }}
- {name: models, emptyDir: {}}
{{- end }}
{{- end }}
{{- if .data }}
{{- with .root.Values.data.existingClaim }}
- {name: data, persistentVolumeClaim: {claimName: {{ . }}}}
{{- end }}
{{- end }}
{{- end -}}

{{/* GPUs cannot be held twice during an update. Takes (dict "gpus" n "replicas" n). */}}
{{- define "potstill.strategy" -}}
{{- if and .gpus (eq (int .replicas) 1) -}}
type: Recreate
{{- else if .gpus -}}
type: RollingUpdate
rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
{{- else -}}
type: RollingUpdate
rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
{{- end -}}
{{- end -}}
