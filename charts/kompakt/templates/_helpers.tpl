{{/* Name of one of our objects: <release>-<part>, cut to a label's length. */}}
{{- define "kompakt.name" -}}
{{- printf "%s-%s" .root.Release.Name .part | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "kompakt.selector" -}}
app.kubernetes.io/name: kompakt
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "kompakt.labels" -}}
{{ include "kompakt.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name and labels of an object that the Prometheus operator looks for. */}}
{{- define "kompakt.monitored" -}}
name: {{ include "kompakt.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "kompakt.labels" . | nindent 2 }}
  {{- with .root.Values.monitoring.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "kompakt.podMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {{ include "kompakt.monitored" . | nindent 2 }}
{{- end -}}

{{- define "kompakt.noImages" -}}
image.registry is not set, and no images of kompakt are published: build operator, extender, device-plugin and runtime from the Dockerfile (docs/install.md), push them where nodes can pull from, and name that place with --set image.registry=REGISTRY/PATH; for images that lie on the nodes as localhost/kompakt-PART:{{ .root.Chart.AppVersion }} set it to localhost
{{- end -}}

{{- define "kompakt.image" -}}
{{- $i := .root.Values.image -}}
{{- $registry := required (include "kompakt.noImages" .) $i.registry -}}
{{- $digest := index (default dict $i.digests) .part -}}
{{- if $digest -}}
{{- printf "%s/kompakt-%s@%s" $registry .part $digest -}}
{{- else -}}
{{- printf "%s/kompakt-%s:%s" $registry .part (default .root.Chart.AppVersion $i.tag) -}}
{{- end -}}
{{- end -}}

{{/* kube-scheduler of the cluster's version, without what a distribution adds to it (v1.37.1+k3s1, v1.36.4-gke.12). */}}
{{- define "kompakt.schedulerImage" -}}
{{- $version := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version -}}
{{- .Values.schedulerImage | default (printf "registry.k8s.io/kube-scheduler:%s" $version) -}}
{{- end -}}

{{/* Pod-wide settings of the parts that need no privilege: Pod Security "restricted". */}}
{{- define "kompakt.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "kompakt.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Parts with an account, as JSON. Where kompakt only reports, the scheduler's pods hold an extender that explains. */}}
{{- define "kompakt.parts" -}}
{{- ternary (list "scheduler" "device-plugin") (list "operator" "scheduler" "device-plugin") (eq .Values.allocation "Report") | toJson -}}
{{- end -}}

{{/* What nodes a pod may land on, and which images it may pull. */}}
{{- define "kompakt.podPlace" -}}
{{- with default .values.priorityClassName .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Replicas keep apart where they can, unless the values say how. */}}
{{- define "kompakt.podSpread" -}}
{{- with .values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- with .values.topologySpreadConstraints }}
{{ toYaml . | indent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "kompakt.selector" . | nindent 8 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod beside our own. */}}
{{- define "kompakt.podMetadata" -}}
labels:
  {{- include "kompakt.labels" . | nindent 2 }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Rules of an account's role from files/rights.yaml: the rows of these places that no role of the cluster gives. */}}
{{- define "kompakt.rules" -}}
{{- $where := .where -}}
{{- $allocation := .root.Values.allocation -}}
{{- $on := list -}}
{{- if .root.Values.kueue.enabled }}{{ $on = append $on "kueue" }}{{ end -}}
{{- if .root.Values.autoscaler.provisioningClassName }}{{ $on = append $on "autoscaler" }}{{ end -}}
{{- if .root.Values.autoscaler.keepNodesAfterSeconds }}{{ $on = append $on "keepNodes" }}{{ end -}}
{{- range index (.root.Files.Get "files/rights.yaml" | fromYaml) .account }}
{{- if and (not .from) (has .where $where) (has $allocation (default (list $allocation) .allocation)) (or (not .with) (has .with $on)) }}
  - apiGroups: [{{ .group | quote }}]
    resources: [{{ .resource }}]
    {{- with .names }}
    resourceNames: {{ toJson . }}
    {{- end }}
    verbs: {{ toJson .verbs }}
{{- end }}
{{- end }}
{{- end -}}

{{/* CEL: whether a container of a pod asks for GPUs. */}}
{{- define "kompakt.asksForGPUs" -}}
{{- $name := .Values.devicePlugin.resourceName -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, '{{ $name }}' in c.?resources.?limits.orValue({}) || '{{ $name }}' in c.?resources.?requests.orValue({}))
{{- end -}}

{{/* CEL: whether the PYTHONPATH of container c may come from where kompakt cannot read it. As injection.obstacle has it. */}}
{{- define "kompakt.pathElsewhere" -}}
(c.?env.orValue([]).exists(e, e.name == 'PYTHONPATH' && has(e.valueFrom)) || (has(c.envFrom) && !c.?env.orValue([]).exists(e, e.name == 'PYTHONPATH' && !has(e.valueFrom))))
{{- end -}}

{{/* Policies outlive the release wherever jobs and their pods do; an uninstall that ends those takes the policies along. */}}
{{- define "kompakt.policyMetadata" -}}
labels: {{ include "kompakt.labels" (dict "root" . "part" "admission") | nindent 2 }}
{{- if or .Values.crds.keep (not .Values.crds.install) }}
annotations: {helm.sh/resource-policy: keep}
{{- end }}
{{- end -}}

{{/* Namespaces in which no job runs and our accounts change nothing, as JSON. */}}
{{- define "kompakt.systemNamespaces" -}}
{{- append .Values.admission.systemNamespaces .Release.Namespace | uniq | toJson -}}
{{- end -}}
