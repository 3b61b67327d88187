{{/* The name of all objects. */}}
{{- define "kube-proxy.name" -}}
{{ .Values.nameOverride | default "kube-proxy" }}{{ if .Values.canary }}-canary{{ end }}
{{- end }}

{{- define "kube-proxy.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "kube-proxy.name" .) }}
{{- end }}

{{/* The labels that identify a pod. They do not change with the chart's version, so that a new chart restarts nothing. */}}
{{- define "kube-proxy.podLabels" -}}
app.kubernetes.io/name: kube-proxy
app.kubernetes.io/component: service-proxy
app.kubernetes.io/part-of: kubernetes
{{- end }}

{{- define "kube-proxy.labels" -}}
{{ include "kube-proxy.podLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "kube-proxy.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion | replace "+" "_" }}{{ end }}
{{- end }}

{{/* config.conf */}}
{{- define "kube-proxy.config" -}}
{{- $fixed := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha2" "kind" "KubeProxyConfiguration" }}
{{- $path := dict "clientConnection" (dict "kubeconfig" "/var/lib/kube-proxy/kubeconfig.conf") }}
{{- toYaml (mergeOverwrite $path (deepCopy .Values.config) $fixed) }}
{{- end }}

{{/* Checks that the schema cannot express. */}}
{{- define "kube-proxy.check" -}}
{{- $config := .Values.config }}
{{- if and (not .Values.apiServer) (not .Values.standalone.enabled) }}
{{- fail "apiServer is not set: give the URL of the API server, such as https://10.0.0.1:6443, not that of the Service \"kubernetes\"" }}
{{- end }}
{{- if and (eq ($config.detectLocalMode | default "ClusterCIDR") "ClusterCIDR") (not (dig "detectLocal" "clusterCIDRs" list $config)) }}
{{- fail "config.detectLocal.clusterCIDRs is not set: give the ranges of the cluster's pods, such as [10.244.0.0/16], or set config.detectLocalMode to another mode" }}
{{- end }}
{{- $metrics := include "kube-proxy.metricsAddress" . }}
{{- if and .Values.metrics.podMonitor.enabled (not .Values.standalone.enabled) (or (not $metrics) (hasPrefix "127." $metrics) (hasPrefix "[::1]" $metrics)) }}
{{- fail "metrics.podMonitor.enabled needs config.metricsBindAddress: 0.0.0.0:10249, because Prometheus cannot reach the default, 127.0.0.1:10249" }}
{{- end }}
{{- range .Values.extraArgs }}
{{- if regexMatch "^--?(healthz|metrics)[-_](bind[-_]address|port)(=|$)" . }}
{{- fail (printf "extraArgs has %s: set config.healthzBindAddress or config.metricsBindAddress, which the probes and the Services follow" .) }}
{{- end }}
{{- end }}
{{- if and .Values.canary .Values.standalone.enabled }}
{{- fail "canary and standalone.enabled exclude each other: a static pod is on one node" }}
{{- end }}
{{- end }}

{{/* The IP:port that a server listens on; empty if it is switched off. As the program does, this adds the port to a bare IP. The
argument is (list CONFIG FIELD DEFAULT-IP DEFAULT-PORT). */}}
{{- define "kube-proxy.address" -}}
{{- $config := index . 0 }}{{ $field := index . 1 }}{{ $ip := index . 2 }}{{ $port := index . 3 }}
{{- $ipv4 := `[0-9]+([.][0-9]+){3}` }}
{{- $ipv6 := printf "([0-9a-fA-F]{0,4}:){2,7}([0-9a-fA-F]{0,4}|%s)" $ipv4 }}
{{- $address := dig $field $ip $config }}
{{- if regexMatch (printf "^%s$" $ipv4) $address }}
{{- printf "%s:%s" $address $port }}
{{- else if regexMatch (printf "^%s$" $ipv6) $address }}
{{- printf "[%s]:%s" $address $port }}
{{- else if or (not $address) (regexMatch (printf `^(%s|\[%s\]):[1-9][0-9]*$` $ipv4 $ipv6) $address) }}
{{- $address }}
{{- else }}
{{- fail (printf "config.%s is %q: give an IP address with or without a port, such as 0.0.0.0:%s or [::]:%s, or \"\" to switch the server off" $field $address $port $port) }}
{{- end }}
{{- end }}

{{- define "kube-proxy.healthAddress" -}}
{{- include "kube-proxy.address" (list .Values.config "healthzBindAddress" "0.0.0.0" "10256") }}
{{- end }}

{{- define "kube-proxy.metricsAddress" -}}
{{- include "kube-proxy.address" (list .Values.config "metricsBindAddress" "127.0.0.1" "10249") }}
{{- end }}

{{/* The flag of a server's address, if the configuration sets it. The argument is (list CONFIG SERVER ADDRESS). */}}
{{- define "kube-proxy.addressFlag" -}}
{{- $server := index . 1 }}
{{- if hasKey (index . 0) (printf "%sBindAddress" $server) }}
- --{{ $server }}-{{ with index . 2 }}bind-address={{ . }}{{ else }}port=0{{ end }}
{{- end }}
{{- end }}

{{/* The port of the metrics server; empty if it is switched off. */}}
{{- define "kube-proxy.metricsPort" -}}
{{ regexFind "[0-9]+$" (include "kube-proxy.metricsAddress" .) }}
{{- end }}

{{/* What the probes ask, given the health server's address. The host is left out if the server listens on the pod's address, which
is its node's and the kubelet's default. */}}
{{- define "kube-proxy.probe" -}}
{{- $host := regexReplaceAll ":[0-9]+$" . "" | trimAll "[]" -}}
httpGet: {path: /livez, port: {{ regexFind "[0-9]+$" . }}{{ if not (regexMatch "^[0:.]+$" $host) }}, host: {{ quote $host }}{{ end }}}
{{- end }}

{{- define "kube-proxy.nodeName" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}

{{/* The flags that both containers begin with. */}}
{{- define "kube-proxy.args" -}}
{{- if .Values.standalone.enabled -}}
- --proxy-mode={{ .Values.config.mode }}
- --cluster-cidr={{ join "," .Values.config.detectLocal.clusterCIDRs }}
{{- include "kube-proxy.addressFlag" (list .Values.config "healthz" (include "kube-proxy.healthAddress" .)) }}
{{- include "kube-proxy.addressFlag" (list .Values.config "metrics" (include "kube-proxy.metricsAddress" .)) }}
{{- else -}}
- --config=/var/lib/kube-proxy/config.conf
{{- end }}
- --hostname-override=$(NODE_NAME)
{{- end }}

{{/* The pod's spec: the DaemonSet's, or the static pod's. */}}
{{- define "kube-proxy.podSpec" -}}
{{- if not .Values.standalone.enabled -}}
serviceAccountName: {{ include "kube-proxy.serviceAccountName" . }}
nodeSelector:
  kubernetes.io/os: linux
  {{- if .Values.canary }}
  kube-proxy/canary: "true"
  {{- end }}
  {{- with .Values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
affinity:
  {{- if .Values.affinity }}
  {{- toYaml .Values.affinity | nindent 2 }}
  {{- else if .Values.canary }}
  # Another proxy on the node would answer the probes of this one: stay pending until it is gone.
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels: {k8s-app: kube-proxy}
        matchExpressions:
        - {key: kube-proxy/track, operator: NotIn, values: [canary]}
  {{- else }}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: kube-proxy/canary, operator: NotIn, values: ["true"]}
  {{- end }}
{{- else -}}
priority: 2000001000 # the kubelet does not look up a static pod's priority class
{{- end }}
priorityClassName: {{ .Values.priorityClassName }}
hostNetwork: true # the rules and ports are the node's
dnsPolicy: Default # cluster DNS is behind a Service
terminationGracePeriodSeconds: 30
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
initContainers:
# Sets the kernel's connection tracking limits and timeouts, then exits. Only a privileged container can write to /proc/sys;
# this one exists so that the proxy itself is not privileged.
- name: prepare
  image: {{ include "kube-proxy.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
  {{- include "kube-proxy.args" . | nindent 2 }}
  - --init-only
  env:
  {{- include "kube-proxy.nodeName" . | nindent 2 }}
  securityContext:
    privileged: true
    readOnlyRootFilesystem: true
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 128Mi}
  volumeMounts:
  {{- if not .Values.standalone.enabled }}
  - {name: config, mountPath: /var/lib/kube-proxy, readOnly: true}
  {{- end }}
  - {name: xtables-lock, mountPath: /run/xtables.lock} # for the rule that goes with node ports on localhost
containers:
- name: kube-proxy
  image: {{ include "kube-proxy.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/local/bin/kube-proxy]
  args:
  {{- include "kube-proxy.args" . | nindent 2 }}
  {{- if .Values.standalone.enabled }}
  - --manifests=/manifests
  {{- else if .Values.startupTaint }}
  - --startup-taint={{ .Values.startupTaint }}
  {{- end }}
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  env:
  {{- include "kube-proxy.nodeName" . | nindent 2 }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  securityContext:
    privileged: false # kubeadm's DaemonSet says true, which would be kept
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    seccompProfile:
      type: RuntimeDefault
    capabilities:
      drop: [ALL]
      add:
      - NET_ADMIN # all access to nftables, iptables and connection tracking
      - NET_RAW # the legacy variant of iptables opens a raw socket
  {{- with include "kube-proxy.healthAddress" . }}
  livenessProbe:
    {{- include "kube-proxy.probe" . | nindent 4 }}
    periodSeconds: 10
    failureThreshold: 6
  startupProbe:
    {{- include "kube-proxy.probe" . | nindent 4 }}
    periodSeconds: 2
    failureThreshold: 60
  {{- end }}
  resources:
  {{- toYaml .Values.resources | nindent 4 }}
  volumeMounts:
  {{- if .Values.standalone.enabled }}
  - {name: manifests, mountPath: /manifests, readOnly: true}
  {{- else }}
  - {name: config, mountPath: /var/lib/kube-proxy, readOnly: true}
  {{- end }}
  - {name: xtables-lock, mountPath: /run/xtables.lock} # the node's other iptables programs take the same lock
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
{{- if .Values.standalone.enabled }}
- name: manifests
  hostPath: {path: {{ .Values.standalone.manifests }}, type: DirectoryOrCreate}
{{- else }}
- name: config
  configMap:
    name: {{ include "kube-proxy.name" . }}
{{- end }}
- name: xtables-lock
  hostPath: {path: /run/xtables.lock, type: FileOrCreate}
{{- with .Values.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}
