{{/* What a schema cannot say, refused with what to do. Included by a template that is always rendered. */}}
{{- define "potstill.checks" -}}
{{- $v := .Values -}}
{{- if not $v.secret.existing -}}
{{- fail "secret.existing is empty: make a Secret and name it. kubectl create secret generic potstill --from-literal=token=$(openssl rand -hex 32) --from-literal=valkey-password=$(openssl rand -hex 32)" -}}
{{- end -}}
{{- if not $v.student.model -}}
{{- fail "student.model is empty: set the folder or hub id that jobs name as student.model" -}}
{{- end -}}
{{- if not $v.teachers -}}
{{- fail "teachers is empty: name at least one, for example --set teachers.maths.model=HuggingFaceTB/SmolLM2-1.7B-Instruct" -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $lane := $v.lanes -}}
{{- if hasKey $seen $lane.name -}}
{{- fail (printf "two lanes are called %s: give each its own name" $lane.name) -}}
{{- end -}}
{{- $_ := set $seen $lane.name true -}}
{{- $learners := (($lane.learner).replicas) | default 1 -}}
{{- if gt (int $learners) 1 -}}
{{- fail (printf "lane %s asks for %d learners, and a lane has one: for more jobs at a time add entries to lanes, for a larger student raise learner.nodes or learner.gpus" $lane.name (int $learners)) -}}
{{- end -}}
{{- end -}}
{{- $processes := int $v.learner.processesPerNode -}}
{{- if and (gt (int $v.learner.gpus) 0) (not (has $processes (list 0 (int $v.learner.gpus)))) -}}
{{- fail (printf "learner.processesPerNode is %d and learner.gpus is %d: a process has one GPU. Leave processesPerNode at 0" $processes (int $v.learner.gpus)) -}}
{{- end -}}
{{- if and (gt (int $v.learner.nodes) 1) (ne $v.artifacts.accessMode "ReadWriteMany") -}}
{{- fail (printf "learner.nodes is %d, and artifacts.accessMode is %s, a volume of one node: use a ReadWriteMany class, or one node" (int $v.learner.nodes) $v.artifacts.accessMode) -}}
{{- end -}}
{{- range $name, $given := $v.teachers -}}
{{- if not $given.model -}}
{{- fail (printf "teachers.%s.model is empty: set the folder or hub id that jobs name" $name) -}}
{{- end -}}
{{- end -}}
{{- if not $v.models.hub -}}
{{- if not $v.models.existingClaim -}}
{{- fail "models.hub is off and models.existingClaim is empty: there is nowhere to take models from. Name a claim that holds them" -}}
{{- end -}}
{{- $models := dict "student.model" $v.student.model -}}
{{- range $name, $given := $v.teachers }}{{- $_ := set $models (printf "teachers.%s.model" $name) $given.model }}{{ end -}}
{{- range $what, $model := $models -}}
{{- if not (hasPrefix "/" $model) -}}
{{- fail (printf "%s is %s, and models.hub is off: name a folder below /models, or turn models.hub on" $what $model) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.autoscaling.verifier.mode "keda") (not $v.autoscaling.prometheusUrl) -}}
{{- fail "autoscaling.verifier.mode is keda, and autoscaling.prometheusUrl is empty: KEDA asks Prometheus for the verifier's queue" -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (ne $v.gateway.service.type "ClusterIP") (not $v.networkPolicy.gatewayFrom) -}}
{{- fail (printf "gateway.service.type is %s, and networkPolicy.gatewayFrom is empty: callers from outside the namespace would be cut off. Name who may call, for example [{ipBlock: {cidr: 10.0.0.0/8}}]" $v.gateway.service.type) -}}
{{- end -}}
{{- $limit := get ($v.valkey.resources.limits | default dict) "memory" | default "" | toString -}}
{{- if and (not $v.externalRedis.host) (regexMatch "^[0-9]+(Mi|Gi)$" $limit) -}}
{{- $bytes := dict "m" 1 "g" 1024 -}}
{{- $most := mul (regexFind "^[0-9]+" $limit | int) (get $bytes (regexFind "[MG]" $limit | lower)) -}}
{{- $asked := mul (regexFind "^[0-9]+" $v.valkey.maxmemory | int) (get $bytes (regexFind "[mg]" $v.valkey.maxmemory)) -}}
{{- if gt (mul 4 $asked) (mul 3 $most) -}}
{{- fail (printf "valkey.maxmemory %s is more than three quarters of valkey.resources.limits.memory %s: the queue would be killed while it writes its file anew. Lower the one or raise the other" $v.valkey.maxmemory $limit) -}}
{{- end -}}
{{- end -}}
{{- range $kind := list "rollout" "verifier" -}}
{{- $auto := get $v.autoscaling $kind -}}
{{- if gt (int $auto.minReplicas) (int $auto.maxReplicas) -}}
{{- fail (printf "autoscaling.%s: minReplicas %d is more than maxReplicas %d" $kind (int $auto.minReplicas) (int $auto.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
