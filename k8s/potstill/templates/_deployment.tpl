{{/*
A Deployment and, with "service", its Service. Takes the dict of podSelector and
  name, replicas (absent: an autoscaler decides), values, image, spread, startup, seconds, environment (text),
  artifacts, models, data, service.
*/}}
{{- define "potstill.deployment" -}}
{{- $root := .root -}}
{{- $gpus := int (.values.gpus | default 0) -}}
{{- $mounts := dict "root" $root "gpus" $gpus "artifacts" .artifacts "models" .models "data" .data -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels:
    {{- include "potstill.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if hasKey . "replicas" }}
  replicas: {{ .replicas }}
  {{- end }}
  # A pod may take all of its loading time before the update counts as failed.
  progressDeadlineSeconds: {{ max 600 (add (int .seconds) 300) }}
  strategy: {{ include "potstill.strategy" (dict "gpus" $gpus "replicas" (.replicas | default 1)) | nindent 4 }}
  selector:
    matchLabels: {{ include "potstill.podSelector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "potstill.podSelector" . | nindent 8 }}
        {{- if .artifacts }}
        potstill/artifacts: "true"
        {{- end }}
    spec:
      serviceAccountName: {{ include "potstill.name" $root }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with .values.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      terminationGracePeriodSeconds: {{ include "potstill.grace" $root }}
      securityContext: {{ include "potstill.podSecurity" $root | nindent 8 }}
      {{- include "potstill.placement" . | nindent 6 }}
      containers:
        - name: {{ .component }}
          image: {{ include "potstill.image" (dict "root" $root "name" .image) }}
          imagePullPolicy: {{ $root.Values.images.pullPolicy }}
          securityContext: {{ include "potstill.containerSecurity" $root | nindent 12 }}
          env:
            {{- .environment | nindent 12 }}
            {{- include "potstill.settings" .values.settings | trim | nindent 12 }}
          {{- include "potstill.lifecycle" (dict "root" $root "startup" .startup "seconds" .seconds) | nindent 10 }}
          resources: {{ include "potstill.resources" .values | nindent 12 }}
          volumeMounts: {{ include "potstill.mounts" $mounts | nindent 12 }}
      volumes: {{ include "potstill.volumes" $mounts | nindent 8 }}
{{- if .service }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  labels:
    {{- include "potstill.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  {{- with .service.annotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .service.type | default "ClusterIP" }}
  selector: {{ include "potstill.podSelector" . | nindent 4 }}
  ports: [{name: http, port: {{ .service.port | default 8080 }}, targetPort: http}]
{{- end }}
{{- end -}}
