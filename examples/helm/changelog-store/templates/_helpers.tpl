{{- define "changelog.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "changelog.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* What selects the pods of one part: (list $ "capture"). */}}
{{- define "changelog.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* A pod: (dict "root" $ "part" "capture" "command" (list …) "resources" … "more" "…" "claim" "…"). */}}
{{- define "changelog.pod" -}}
metadata:
  labels: {{- include "changelog.selector" (list .root .part) | nindent 4 }}
  annotations:
    # A pod starts anew when the project is another.
    checksum/project: {{ .root.Values.project | toJson | sha256sum }}
    {{- with .root.Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  automountServiceAccountToken: false
  # Variables of services would be taken for settings: CHANGELOG_….
  enableServiceLinks: false
  terminationGracePeriodSeconds: 120
  {{- with .restart }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: {{ .container | default .part }}
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: {{ .command | toJson }}
      envFrom:
        - secretRef: {name: {{ .root.Values.secretName }}}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .resources | nindent 8 }}
      {{- with .more }}{{ . | nindent 6 }}{{ end }}
      volumeMounts:
        - {name: project, mountPath: /project/changelog.toml, subPath: changelog.toml, readOnly: true}
        - {name: views, mountPath: /project/views, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        - {name: data, mountPath: /data}
  volumes:
    - name: project
      configMap: {name: {{ include "changelog.name" .root }}-project}
    - name: views
      configMap: {name: {{ include "changelog.name" .root }}-views}
    - name: tmp
      emptyDir: {}
    - name: data
      {{- if .claim }}
      persistentVolumeClaim: {claimName: {{ .claim }}}
      {{- else }}
      emptyDir: {}
      {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
