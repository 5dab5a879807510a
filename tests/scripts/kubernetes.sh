#!/usr/bin/env bash
# The manifests of scripts/kubernetes fit the strict schemas of two versions of Kubernetes: the first that has
# what they use, and the newest known. Also what schemas cannot say: timeouts of probes are longer than 2 s,
# and only containers that need privileges have them.
. "$(dirname "$0")/../lib.sh"
requires slow
pip_python kubernetes-validate kubernetes-validate

manifests=("$top_srcdir"/scripts/kubernetes/*.yaml)
at_least "there are manifests" 3 "${#manifests[@]}"
for version in 1.29 ""; do
	check "the manifests fit the schemas (${version:-the newest})" \
		"$python" -m kubernetes_validate --strict --quiet ${version:+-k "$version"} "${manifests[@]}"
done
sed 's/mountPropagation: B/mountPropagatoin: B/' "$top_srcdir/scripts/kubernetes/daemonset.yaml" \
	>"$T/wrong.yaml"
check_not "a wrong name would be found" "$python" -m kubernetes_validate --strict --quiet "$T/wrong.yaml"

version=$(sed -nE 's/^AC_INIT\(\[penstock\], \[([^]]*)\].*/\1/p' "$top_srcdir/configure.ac")
cat >"$T/look.py" <<'PY'
import sys, yaml
version, *files = sys.argv[1:]
for f in files:
    for d in yaml.safe_load_all(open(f)):
        spec = d.get("spec", {})
        spec = spec.get("template", {}).get("spec", spec)
        for c in spec.get("initContainers", []) + spec.get("containers", []):
            where = "%s: %s: " % (f, c["name"])
            assert c["image"] == "penstock:" + version, where + c["image"]
            security = c.get("securityContext", {})
            both = any(m.get("mountPropagation") == "Bidirectional" for m in c.get("volumeMounts", []))
            assert security.get("privileged", False) == both, where + "privileged"
            assert both or security.get("allowPrivilegeEscalation") is False, where + "escalation"
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert (probe in c) or not both or probe == "readinessProbe", where + probe
                assert c.get(probe, {}).get("timeoutSeconds", 3) > 2, where + probe
        for v in spec.get("volumes", []):
            assert "secret" not in v or v["secret"]["defaultMode"] == 0o400, f
        assert "volumes" not in spec or spec["automountServiceAccountToken"] is False, f
PY
check "privileges, probes and secrets are as the guide says" \
	"$python" "$T/look.py" "$version" "${manifests[@]}"
