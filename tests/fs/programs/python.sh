#!/usr/bin/env bash
# penstock.Loader() of URLs, and penstock.mount(): ranks as processes, their ends, and errors of missing
# parts.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq
penstock_python

mkdir -p "$T/tmp" "$T/no" "$T/empty"
export TMPDIR=$T/tmp PENSTOCK_CACHE_DIR=$CACHE
[[ $(stat -f -c %T "$T") != tmpfs ]] || skip_all "$T is in memory, where no cache of an owner's mount may be"
make_shards "$T/www/train" 6 1000000
penstock-loader index "$T"/www/train/*.tar >/dev/null
start_nginx
export ORIGIN
nmounts() { ps_mounts_below "$T/tmp" | wc -l; }
are_mounted() { (($(nmounts) == $1)); }
cat >"$T/common.py" <<'PY'
import os, sys, time, warnings
import penstock
O, T = os.environ["ORIGIN"], os.environ["PS_TEST_DIR"]
FIELDS = {"label": penstock.Int("cls"), "text": penstock.Text("txt")}
def labels(shards, **options):
    with penstock.Loader(shards, 8, FIELDS, format="numpy", copy=True, **options) as loader:
        rows = [(b, i) for b in loader for i in range(b.rows) if b["__valid__"][i]]
        return [(b["text"][i], int(b["label"][i])) for b, i in rows]
PY
export PYTHONPATH=$T:$PYTHONPATH
run() { timeout 60 "$python" -c "from common import *
$1"; }

check "the samples of URLs are those of the files" run '
want = sorted(labels(T + "/www/train", world=1, rank=0))
assert len(want) > 10, len(want)
for url in ["/train/shard-{000000..000005}.tar", "/train/"]:
    assert sorted(labels(O + url)) == want, url
first, rest = "/train/shard-{000000..000002}.tar", "/train/shard-{000003..000005}.tar"
assert sorted(labels([O + first, O + rest])) == want
assert sorted(labels(O + first + "::" + T + "/www" + rest)) == want
assert len(labels(O + "/train/shard-000001.tar")) < len(want)'
check "a URL of a compressed shard gives the shard's samples" run '
import gzip, shutil
os.mkdir(T + "/www/packed")
with open(T + "/www/train/shard-000001.tar", "rb") as a, gzip.open(T + "/www/packed/a.tar.gz", "wb") as b:
    shutil.copyfileobj(a, b)
found = labels(O + "/packed/a.tar.gz")
assert found and found == labels(O + "/train/shard-000001.tar")'
check "the mounts end with their loaders" wait_until 10 are_mounted 0

cat >"$T/rank.py" <<'PY'
from common import *
rank, world = int(sys.argv[1]), int(sys.argv[2])
loader = penstock.Loader(O + "/train/shard-{000000..000005}.tar", 4, FIELDS, format="numpy", copy=True,
                         rank=rank, world=world, end="pad")
batches = [b["text"][i] for b in loader for i in range(b.rows) if b["__valid__"][i]]
with open(T + "/rank%d" % rank, "w") as f: f.write("\n".join(batches) + "\n")
with open(T + "/place%d" % rank, "w") as f: f.write(loader._mounts[0].path)
time.sleep(600)
PY
ranks=()
for i in 0 1 2 3; do
	"$python" "$T/rank.py" "$i" 4 &
	ranks+=($!)
done
for i in 0 1 2 3; do wait_until 60 test -s "$T/place$i" || fail "rank $i reads"; done
equal "four ranks have one mount" "1 1" "$(nmounts) $(sort -u "$T"/place? | wc -l)"
texts=$(run 'print(*sorted(t for t, _ in labels(T + "/www/train")), sep="\n")')
equal "four ranks read each sample once, by the indexes beside the shards" \
	"$texts" "$(sort "$T"/rank? | grep .)"
kill -KILL "${ranks[@]:0:3}"
sleep 0.3
equal "the mount stays when three ranks are killed" 1 "$(nmounts)"
kill -KILL "${ranks[3]}"
check "the mount ends when all ranks are killed" wait_until 10 are_mounted 0
check "the daemon ends with its last mount" wait_until 10 no_daemon

check "mount() is a context manager, and a path" run '
with penstock.mount(O + "/train/") as m:
    assert "shard-000001.tar" in os.listdir(m) and os.path.exists(f"{m}/shard-000001.tar")
    again = penstock.mount(O + "/train/")
    assert again.path == m.path
assert os.listdir(again) and "closed" in repr(m)
again.close()
for i in range(200):
    if not os.listdir(again.path): break
    time.sleep(0.05)
else: raise AssertionError("it is still there")
with penstock.mount({"a": O + "/train/", "b": O + "/packed/"}, refresh="1h", no_passthrough=True) as m:
    assert os.listdir(f"{m}/b") == ["a.tar"]'
check "headers, lists and sizes are options" run '
options = dict(header="X-Token: secret", max_connections=8, cache_size="1G")
assert labels(O + "/token/train/shard-000001.tar", mount=options)
try: labels(O + "/token/train/shard-000001.tar")
except penstock.MountError as e: assert "refuses access" in str(e), e
else: raise AssertionError'
check "a loader can be pickled for another process" run '
import multiprocessing, pickle
loader = penstock.Loader(O + "/train/shard-{000000..000005}.tar", 8, FIELDS, format="numpy", copy=True)
first = next(iter(loader))["text"][0]
state = pickle.dumps(loader)
loader.close()
rest = pickle.loads(state)
assert O in repr(rest) and first not in [b["text"][0] for b in rest]'
check "close() in a forked child does not end the parent's mount" run '
m = penstock.mount(O + "/train/")
child = os.fork()
if child == 0:
    m.close()
    os._exit(0)
os.waitpid(child, 0)
time.sleep(0.3)
assert os.listdir(m)'

# Missing parts are reported within a second.
text() {
	run "
t = time.time()
try:
    $1
except (penstock.MountError, ValueError) as e:
    assert time.time() - t < 1, time.time() - t
    print(e)
else: raise AssertionError('it works')"
}
has() {
	local out
	out=$(text "$1") || return 1
	shift
	for word; do [[ $out == *"$word"* ]] || { echo "$out lacks $word" && return 1; }; done
}
load='penstock.Loader("s3://bucket/x-{0..9}.tar")'
check "the error without the program penstock" \
	has "import shutil; shutil.which = lambda *a, **k: None; $load" \
	"the program \`penstock\` is not in" "--device /dev/fuse" "mount on the host"
check "the error without /dev/fuse" \
	has "os.open = lambda *a: (_ for _ in ()).throw(FileNotFoundError()); $load" \
	"no /dev/fuse" "modprobe fuse" "--device /dev/fuse --cap-add SYS_ADMIN" \
	"penstock mount 's3://bucket/x-{0..9}.tar' /data/train" ro,rslave
check "the error without fusermount3" has "import shutil; os.geteuid = lambda: 1; w = shutil.which
    shutil.which = lambda n, **k: None if n == 'fusermount3' else w(n); $load" \
	"fusermount3 is not installed (package fuse3)"
if ((EUID == 0)) && command -v setpriv >/dev/null; then
	without() {
		setpriv --bounding-set=-sys_admin --inh-caps=-all -- "$python" -c "from common import *
try: penstock.mount('s3://bucket/x/')
except penstock.MountError as e: print(e)"
	}
	check "the error without CAP_SYS_ADMIN" grep -q "not permitted here (no CAP_SYS_ADMIN)" <(without)
fi
check "the error of a pipe: source" has 'penstock.Loader("pipe:aws s3 cp s3://b/x-{0..9}.tar -")' \
	"give the URL itself: 's3://b/x-{0..9}.tar'"
check "the error of an unknown option" has 'penstock.mount(O + "/train/", max_conections=3)' \
	"max-conections" "did you mean"
check "the error of a missing URL" has 'penstock.Loader(O + "/nothing/")' "404"
check "no mount is left" wait_until 10 are_mounted 0
