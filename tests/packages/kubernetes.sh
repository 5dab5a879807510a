#!/usr/bin/env bash
# tests/packages/kubernetes.sh DIR: runs the pods of scripts/kubernetes with the image in DIR, by podman: the
# daemon of a node and a reader, the sidecar, their probes, and what the ends of pods do to mounts. Run it only
# in a disposable root: scripts/container --test makes one.
. "${0%/*}/lib.sh"
disposable scripts/container
in_cgroup2 "$@"
image=$(echo "$1"/penstock-*.oci.tar)
podman() { timeout 90 podman --storage-driver vfs --cgroup-manager cgroupfs "$@"; }

apt update
apt install podman crun catatonit nginx-light procps python3 python3-yaml
version=$(sed -nE 's/^AC_INIT\(\[penstock\], \[([^]]*)\].*/\1/p' /penstock/configure.ac)
# A container makes no control groups, as this root may not be allowed to.
export CONTAINERS_CONF=$work/containers.conf
printf '[containers]\ncgroups = "disabled"\n' >"$CONTAINERS_CONF"
mkdir -p "$work"/served/{train,val}
python3 - "$work/served" <<'PY'
import glob, io, sys, tarfile
for i, photo in enumerate(sorted(glob.glob("/penstock/tests/data/photos/*.jpg"))):
    for part in ("train", "val"):
        with tarfile.open("%s/%s/x-%06d.tar" % (sys.argv[1], part, i // 4), "a") as tar:
            tar.add(photo, "%03d.jpg" % i)
            info = tarfile.TarInfo("%03d.cls" % i)
            info.size = len(str(i))
            tar.addfile(info, io.BytesIO(b"%d" % i))
PY
cat >"$work/nginx.conf" <<-END
	pid $work/nginx.pid;
	error_log $work/error.log;
	worker_processes 1;
	events {}
	http {
		access_log off;
		server {
			listen 127.0.0.1:8770; root $work/served; autoindex on;
			if (\$http_authorization != "Bearer hush") { return 403; }
		}
	}
END
nginx -c "$work/nginx.conf"
check "the image loads" podman load -i "$image"

# What stands for the node: the folder of mounts is shared, as kubelet's are.
mkdir -p "$work"/{mnt,nvme,empty}
for folder in mnt empty; do
	mount --bind "$work/$folder" "$work/$folder"
	mount --make-rshared "$work/$folder"
done

# pods.py WORK VERSION MANIFEST: prints its pods as podman takes them. A DaemonSet or a Job is its pod; a native
# sidecar is a container among the others; a claim and an emptyDir are folders of the node. Nothing else is
# changed but names of places.
cat >"$work/pods.py" <<'PY'
import sys, yaml
work, version, manifest = sys.argv[1:]
def pod(name, template):
    spec = template["spec"]
    spec["hostNetwork"] = True  # loopback leads to the server
    for c in [c for c in spec.get("initContainers", []) if c.get("restartPolicy") == "Always"]:
        spec["initContainers"].remove(c)
        del c["restartPolicy"]
        spec["containers"].insert(0, c)
    for c in spec["containers"] + spec.get("initContainers", []):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            c.pop(probe, None)  # called by the test
        if c["name"] == "train":
            c["command"] = ["sleep", "1000"]  # its own command is run by the test
    for v in spec["volumes"]:
        if "secret" in v:
            v["secret"]["optional"] = False  # podman 4.3 needs it said
        if "emptyDir" in v:
            v.pop("emptyDir")
            v["hostPath"] = {"path": "%s/empty/%s" % (work, v["name"]), "type": "DirectoryOrCreate"}
        if "persistentVolumeClaim" in v:
            v.pop("persistentVolumeClaim")
            v["hostPath"] = {"path": "/var/lib/penstock/mnt", "type": "Directory"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
out = []
for d in yaml.safe_load_all(open(manifest)):
    if d["kind"] in ("DaemonSet", "Job"):
        out.append(pod(d["metadata"]["name"], d["spec"]["template"]))
    elif d["kind"] == "Pod":
        out.append(pod(d["metadata"]["name"], d))
    elif d["kind"] in ("ConfigMap", "Secret"):
        if "stringData" in d:  # podman knows only data
            import base64
            d["data"] = {k: base64.b64encode(v.encode()).decode() for k, v in d.pop("stringData").items()}
        out.insert(0, d)
text = yaml.safe_dump_all(out)
for a, b in (("https://data.example.org/imagenet/train-{000000..001023}.tar", "http://127.0.0.1:8770/train/"),
             ("https://data.example.org/imagenet/val/", "http://127.0.0.1:8770/val/"),
             ("image: penstock:" + version, "image: localhost/penstock:" + version),
             ("path: /nvme/penstock", "path: %s/nvme" % work),
             ("path: /var/lib/penstock/mnt\n", "path: %s/mnt\n" % work)):
    text = text.replace(a, b)
print(text)
PY
# probe.py MANIFEST KIND: prints the command of the first probe of that kind, a word a line.
cat >"$work/probe.py" <<'PY'
import sys, yaml
for d in yaml.safe_load_all(open(sys.argv[1])):
    spec = d.get("spec", {}).get("template", {}).get("spec", {})
    for c in spec.get("initContainers", []) + spec.get("containers", []):
        if sys.argv[2] in c:
            print("\n".join(c[sys.argv[2]]["exec"]["command"]))
            sys.exit()
PY
mounted() { findmnt -n -t fuse.penstock "$work/mnt/data"; }
manifests=/penstock/scripts/kubernetes
sed -i 's/replace-me/hush/' "$manifests/daemonset.yaml"
play() { # NAME
	python3 "$work/pods.py" "$work" "$version" "$manifests/$1.yaml" >"$work/$1.yaml" &&
		podman play kube "$work/$1.yaml"
}
probe() { # MANIFEST KIND CONTAINER
	local words
	mapfile -t words < <(python3 "$work/probe.py" "$manifests/$1.yaml" "$2")
	((${#words[@]} > 0)) && podman exec "$3" "${words[@]}"
}
# The daemon of a node, and a reader -------------------------------------------------------------------------

check "the DaemonSet's pod starts" play daemonset
check "its startup probe succeeds" wait_until 60 probe daemonset startupProbe penstock-penstock
mounted || {
	podman ps -a
	podman logs penstock-penstock
	exit 1
}
check "the node has the mount" mounted
check "it shows the sources as folders" diff -r "$work/served" "$work/mnt/data" -x .penstock
check "it is ready" probe daemonset readinessProbe penstock-penstock
check "it is alive" probe daemonset livenessProbe penstock-penstock
check "the cache is on the node's disk" grep . <(ls -A "$work/nvme")
check "the reader's pod starts" play reader
# shellcheck disable=SC2016 # for the container's shell
check "a user without rights reads in it" wait_until 30 podman exec reader-train sh -c \
	'[ "$(id -u)" = 1000 ] && cat /data/data/val/*.tar >/dev/null'
check "the reader cannot write" not podman exec reader-train sh -c 'echo x >/data/data/val/x'
check "its program loads" podman exec reader-train penstock-loader bench --epochs 1 /data/data/val

stop_nginx
podman exec penstock-penstock penstock refresh /var/lib/penstock/mnt/data >"$work/out" 2>&1 || true
unready() { ! probe daemonset readinessProbe penstock-penstock; }
check "it is not ready while the origin is down" wait_until 30 unready
check "it is alive while the origin is down" probe daemonset livenessProbe penstock-penstock
nginx -c "$work/nginx.conf"
check "the reader reads on when the origin is back" \
	wait_until 60 podman exec reader-train penstock-loader bench --epochs 1 /data/data/train

daemon=$(pgrep -x penstock)
kill -STOP "$daemon"
check "it is not alive while the daemon stands still" not probe daemonset livenessProbe penstock-penstock
kill -KILL "$daemon"
ended() { [[ $(podman inspect -f '{{.State.Running}}' "$1") == false ]]; }
check "the container of a killed daemon ends" wait_until 30 ended penstock-penstock
check "the reader gets errors then" not podman exec reader-train cat /data/data/val/x-000000.tar
podman start penstock-penstock >"$work/out" 2>&1
check "a restarted container is alive again" wait_until 60 probe daemonset livenessProbe penstock-penstock
check "the reader sees the new mount without a restart" \
	wait_until 30 podman exec reader-train cat /data/data/val/x-000000.tar
check "the pod stops" podman pod stop -t 60 penstock
check "its daemon has unmounted" not mounted
check "the reader's folder is empty" not podman exec reader-train ls /data/data/val
podman pod rm -f reader penstock >"$work/out" 2>&1 || true

# The sidecar ------------------------------------------------------------------------------------------------

check "the sidecar's pod starts" play sidecar
check "its startup probe succeeds" wait_until 60 probe sidecar startupProbe train-penstock
check "the other container, without rights, reads" \
	podman exec train-train penstock-loader bench --epochs 1 /mnt/data
check "the sidecar is alive" probe sidecar livenessProbe train-penstock
check "its cache is in the pod's volume, in a folder of its user" podman exec train-penstock \
	sh -c 'ls -d /var/cache/penstock/* && find /var/cache/penstock -name data | grep .'
check "the pod stops" podman pod stop -t 60 train
check "nothing is mounted any more" same 0 "$(mounts)"
podman pod rm -f train >"$work/out" 2>&1 || true
check "no process is left" not pgrep -x penstock

umount "$work/mnt" "$work/empty"
stop_nginx
podman rm -a -f >"$work/out" 2>&1
verdict
