#!/usr/bin/env bash
# What penstock.Loader() raises when a mount cannot read a shard: the origin's errno, the shard, and what the
# mount says.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx getfattr
penstock_python

make_shards "$T/www" 2 3000000
make_shards "$T/www/closed" 1 3000000
start_nginx
mount_penstock "$ORIGIN/json/" --timeout 3s
cat >"$T/failure.py" <<'PY'
import sys
import penstock

try:
    list(penstock.Loader(sys.argv[1], 4, penstock.Text("txt"), order="none", copy=True))
except penstock.BadSampleError as e:
    print(type(e).__name__, isinstance(e, OSError), e.errno, e.shard)
    print(e, file=sys.stderr)
PY
# fails SHARD WANT: reading the shard fails with this exception; its text is in $T/err.
fails() {
	equal "$2 is raised" "$2 $MNT/$1" "$(timeout 60 "$python" "$T/failure.py" "$MNT/$1" 2>"$T/err")"
}

mv "$T/www/shard-000001.tar" "$T/hidden.tar"
fails shard-000001.tar "ShardNotFoundError True 2"
touch "$T/nginx/closed"
fails closed/shard-000000.tar "ShardDeniedError True 13"
kill_nginx
fails shard-000000.tar "ShardReadError True 113" # EHOSTUNREACH
check "the text has what the mount says of the origin" grep -q 'the mount reports: .*onnect' "$T/err"
equal "user.penstock.errno has the origin's errno" \
	113 "$(getfattr --absolute-names --only-values -n user.penstock.errno "$MNT/shard-000000.tar")"

if [[ ! -S /dev/log ]]; then # as in containers
	restart_nginx
	check "a mount without a syslog is no warning of Python's" timeout 60 "$python" - <<-'PY'
		import os, warnings, penstock
		with warnings.catch_warnings(record=True) as told:
		    warnings.simplefilter("always")
		    penstock.mount(os.environ["ORIGIN"] + "/").close()
		assert not told, [str(w.message) for w in told]
	PY
fi
