#!/usr/bin/env bash
# tests/packages/kubernetes.sh DIR: runs the pods of scripts/kubernetes with the image in DIR, by podman: the
# daemon of a node and a reader, the sidecar, their probes, and what the ends of pods do to mounts. Run it
# only in a disposable root: scripts/container --test makes one.
. "${0%/*}/lib.sh"
disposable scripts/container
in_cgroup2 "$@"
image=$(echo "$1"/penstock-*.oci.tar)
podman() { timeout 90 podman --storage-driver vfs --cgroup-manager cgroupfs "$@"; }

apt update
apt install podman crun nginx-light procps python3 python3-yaml
version=$(sed -nE 's/^AC_INIT\(\[penstock\], \[([^]]*)\].*/\1/p' /penstock/configure.ac)
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

# pods.py WORK VERSION MANIFEST: prints a line of arguments of "podman run" for each container of its pods,
# and makes their volumes: kubelet's links for secrets and configurations, folders of the node for the
# others. A native sidecar is a container that is started first. (podman's own "play kube" needs control
# groups.)
cat >"$work/pods.py" <<'PY'
import os, shlex, sys, yaml
work, version, manifest = sys.argv[1:]
text = open(manifest).read()
for a, b in (("https://data.example.org/imagenet/train-{000000..001023}.tar", "http://127.0.0.1:8770/train/"),
             ("https://data.example.org/imagenet/val/", "http://127.0.0.1:8770/val/"),
             ("path: /nvme/penstock", "path: %s/nvme" % work),
             ("path: /var/lib/penstock/mnt\n", "path: %s/mnt\n" % work)):
    text = text.replace(a, b)
documents = list(yaml.safe_load_all(text))
def write(kind, name, mode):
    folder = "%s/volumes/%s-%s" % (work, kind, name)
    for d in documents:
        if d["kind"] == kind and d["metadata"]["name"] == name and not os.path.exists(folder):
            os.makedirs(folder + "/..1")
            os.symlink("..1", folder + "/..data")
            for key, value in {**d.get("data", {}), **d.get("stringData", {})}.items():
                os.symlink("..data/" + key, folder + "/" + key)
                with open(folder + "/..1/" + key, "w") as f:
                    f.write(value)
                os.chmod(f.name, mode)
    return folder
def place(v):
    if "secret" in v:
        return write("Secret", v["secret"]["secretName"], v["secret"]["defaultMode"])
    if "configMap" in v:
        return write("ConfigMap", v["configMap"]["name"], 0o644)
    if "emptyDir" in v:
        path = "%s/empty/%s" % (work, v["name"])
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o777)
        return path
    return v["hostPath"]["path"] if "hostPath" in v else work + "/mnt"
ways = {"Bidirectional": "rshared", "HostToContainer": "rslave", None: "rprivate"}
for d in documents:
    if d["kind"] not in ("DaemonSet", "Job", "Pod"):
        continue
    spec = d["spec"] if d["kind"] == "Pod" else d["spec"]["template"]["spec"]
    volumes = {v["name"]: place(v) for v in spec["volumes"]}
    for c in spec.get("initContainers", []) + spec["containers"]:
        rights = {**spec.get("securityContext", {}), **c.get("securityContext", {})}
        words = ["--name", d["metadata"]["name"] + "-" + c["name"]]
        words += ["--privileged"] if rights.get("privileged") else ["--cap-drop", "all"]
        words += ["--user", str(rights["runAsUser"])] if "runAsUser" in rights else []
        words += ["--security-opt", "no-new-privileges"] if rights.get("allowPrivilegeEscalation") is False else []
        for m in c["volumeMounts"]:
            words += ["-v", "%s:%s:%s%s" % (volumes[m["name"]], m["mountPath"], ways[m.get("mountPropagation")],
                                            ",ro" if m.get("readOnly") else "")]
        words += ["localhost/" + c["image"]]
        words += ["sleep", "1000"] if c["name"] == "train" else c["command"]  # the test runs commands in it
        print(" ".join(map(shlex.quote, words)))
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
play() { # NAME: a container makes no control groups, as this root may not be allowed to
	local line words
	python3 "$work/pods.py" "$work" "$version" "$manifests/$1.yaml" >"$work/$1.pods" || return 1
	while read -r line; do
		eval "words=($line)"
		podman run -d --cgroups=disabled --network host "${words[@]}" || return 1
	done <"$work/$1.pods"
}
probe() { # MANIFEST KIND CONTAINER
	local words
	mapfile -t words < <(python3 "$work/probe.py" "$manifests/$1.yaml" "$2")
	((${#words[@]} > 0)) && podman exec "$3" "${words[@]}"
}
# The daemon of a node, and a reader -------------------------------------------------------------------------

check "the DaemonSet's pod starts" play daemonset
check "its startup probe succeeds" wait_until 20 probe daemonset startupProbe penstock-penstock
mounted >"$work/out" || {
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
check "a listing that failed is a warning, and counts as ready" \
	probe daemonset readinessProbe penstock-penstock
check "it is alive while the origin is down" probe daemonset livenessProbe penstock-penstock
nginx -c "$work/nginx.conf"
check "the reader reads on when the origin is back" \
	wait_until 60 podman exec reader-train penstock-loader bench --epochs 1 /data/data/train

daemon=$(pgrep -x penstock)
kill -STOP "$daemon"
check "it is not alive while the daemon stands still" not probe daemonset livenessProbe penstock-penstock
kill -KILL "$daemon"
ended() { [[ $(podman inspect -f '{{.State.Running}}' "$1") == false ]]; }
check "the reader reads on: the keeper starts the next daemon (Linux 6.10)" \
	wait_until 30 podman exec reader-train cat /data/data/val/x-000000.tar
check "the container goes on" not ended penstock-penstock
podman kill penstock-penstock >"$work/out" 2>&1
check "a killed container ends" wait_until 30 ended penstock-penstock
check "the reader gets errors then" not podman exec reader-train cat /data/data/val/x-000000.tar
podman start penstock-penstock >"$work/out" 2>&1
check "a restarted container is alive again" wait_until 60 probe daemonset livenessProbe penstock-penstock
check "the reader sees the new mount without a restart" \
	wait_until 30 podman exec reader-train cat /data/data/val/x-000000.tar
check "the pod stops" podman stop -t 60 penstock-penstock
check "its daemon has unmounted" not mounted
check "the reader's folder is empty" not podman exec reader-train ls /data/data/val
podman rm -f reader-train reader-wait penstock-penstock >"$work/out" 2>&1 || true

# The sidecar ------------------------------------------------------------------------------------------------

check "the sidecar's pod starts" play sidecar
check "its startup probe succeeds" wait_until 60 probe sidecar startupProbe train-penstock
check "the other container, without rights, reads" \
	podman exec train-train penstock-loader bench --epochs 1 /mnt/data
check "the sidecar is alive" probe sidecar livenessProbe train-penstock
check "its cache is in the pod's volume, in a folder of its user" podman exec train-penstock \
	sh -c 'ls -d /var/cache/penstock/* && find /var/cache/penstock -name data | grep .'
check "the pod stops" podman stop -t 60 train-train train-penstock
check "nothing is mounted any more" same 0 "$(mounts)"
podman rm -f train-train train-penstock >"$work/out" 2>&1 || true
check "no process is left" not pgrep -x penstock

umount "$work/mnt" "$work/empty"
stop_nginx
podman rm -a -f >"$work/out" 2>&1
verdict
