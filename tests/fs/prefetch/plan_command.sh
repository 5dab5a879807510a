#!/usr/bin/env bash
# `penstock plan` and penstock.plan(): files are fetched in the announced order before they are read; names
# that are not files are reported; a plan ends with the process that holds it.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

mkdir -p "$T/www/sub"
for i in {10..29}; do
	random_file "$T/www/sub/$i.tar" 1000000 "$i"
done
start_nginx
mount_penstock "$ORIGIN/" --max-connections 1
plans() { jq -r "$1" "$MNT/.penstock/plan"; }
state() { getfattr --only-values -n user.penstock.state "$MNT/sub/$1.tar" 2>/dev/null; }
all_cached() {
	local i
	for i; do [[ $(state "$i") == cached ]] || return 1; done
}
# Prints the order in which files were first requested from the origin.
order() { awk '$1 == "GET" && $2 ~ /tar$/ && !seen[$2]++ {print substr($2, 6, 2)}' "$T/nginx/access.log" |
	xargs; }

origin_forget
printf '%s\n' "$MNT/sub/25.tar" sub/13.tar '# a comment' sub/nosuch.tar "$MNT//sub/19.tar" sub /etc/passwd |
	penstock plan "$MNT" --job mine >"$T/plan.out" 2>"$T/plan.err" &
plan=$!
check "announced files are fetched before they are read" wait_until 30 all_cached 25 13 19
equal "announced files are fetched in their order" "25 13 19" "$(order)"
equal "files that are not announced are not fetched" remote "$(state 10)"
equal "the plan is shown" "mine 3" "$(plans '.ranks[0] | "\(.job) \(.files)"')"
equal "bad names are reported" \
	"penstock plan: 3 of 6 names are not files of $MNT, the first: sub/nosuch.tar; paths must be absolute, or relative to $MNT or the current folder" \
	"$(cat "$T/plan.err")"
equal "the number of announced files is reported" "3 files announced to $MNT" "$(cat "$T/plan.out")"
young() { jq -e '.ranks[0].age_seconds < 1' "$MNT/.penstock/plan"; }
old() { jq -e '.ranks[0].age_seconds > 1' "$MNT/.penstock/plan"; }
check "the plan's age grows" wait_until 20 old
kill -STOP "$plan"
kill -CONT "$plan"
check "a plan that continues after SIGSTOP sends a heartbeat" wait_until 10 young
kill "$plan"
rc=0
wait "$plan" || rc=$?
equal "with a bad name the exit code is 1" 1 "$rc"
over() { [[ $(plans .active) == 0 ]]; }
check "the plan ends with its process" wait_until 20 over
echo sub/10.tar | penstock plan "$MNT" >"$T/plan.out" &
plan=$!
check "a file of another plan is fetched" wait_until 30 all_cached 10
kill "$plan"
rc=0
wait "$plan" || rc=$?
equal "without a bad name the exit code is 0" 0 "$rc"
ln -s "$MNT" "$T/link"
origin_forget
(cd "$T" && exec penstock plan "$MNT" <<<"mnt/sub/11.tar"$'\n'"$T/link/sub/15.tar" >"$T/plan.out" 2>"$T/plan.err") &
plan=$!
check "paths from the current folder and through a link are fetched" wait_until 30 all_cached 11 15
kill "$plan"
wait "$plan" || true
equal "such paths are announced without an error" \
	"2 files announced to $MNT" "$(cat "$T/plan.out" "$T/plan.err")"
rc=0
penstock plan "$MNT" </dev/null 2>"$T/plan.err" || rc=$?
equal "an empty list is an error" "1 penstock plan: the list on standard input is empty" "$rc $(cat "$T/plan.err")"
rc=0
penstock plan "$T" </dev/null 2>"$T/plan.err" || rc=$?
equal "a folder that is not a mount is an error" 1 "$rc"
MNT=$T/lru
CACHE=$T/cache-lru
mount_penstock "$ORIGIN/" --policy lru
rc=0
penstock plan "$MNT" <<<sub/10.tar 2>"$T/plan.err" || rc=$?
equal "a mount whose policy follows no plans is an error" \
	"1 penstock plan: $MNT: its --policy does not follow plans; mount it with --policy plan" \
	"$rc $(cat "$T/plan.err")"
umount_penstock
MNT=$T/mnt

has_penstock_python || {
	skip "penstock.plan() in Python" "$no_python"
	exit 0
}
origin_forget
check "penstock.plan() in Python" "$python" - "$MNT" <<'PY'
import os, sys, time, warnings
import penstock
mnt = sys.argv[1]
def cached(*numbers, seconds=30):
    end = time.time() + seconds
    while any(os.getxattr(f"{mnt}/sub/{n}.tar", "user.penstock.state") != b"cached" for n in numbers):
        assert time.time() < end, numbers
        time.sleep(0.05)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with penstock.plan(mnt, [f"{mnt}/sub/29.tar", "sub/12.tar", "sub/none.tar"], job="python") as plan:
        cached(29, 12)
        assert plan.missing == ["sub/none.tar"], plan.missing
        plan.next_epoch(["sub/14.tar"])
        cached(14)
        import json
        ranks = json.load(open(f"{mnt}/.penstock/plan"))["ranks"]
        assert [(r["job"], r["epoch"]) for r in ranks] == [("python", 1)], ranks
assert "1 of 3 names are not files" in str(caught[0].message), caught
assert json.load(open(f"{mnt}/.penstock/plan"))["active"] == 0
try:
    penstock.plan(mnt, ["none"])
    assert False
except FileNotFoundError as e:
    assert "paths must be absolute" in str(e), e
os.chdir(os.path.dirname(mnt))
with penstock.plan(mnt, ["mnt/sub/10.tar", "link/sub/11.tar", "sub/12.tar"]) as p:
    assert p.missing == [] and p._files == ["sub/10.tar", "sub/11.tar", "sub/12.tar"], p._files
with penstock.plan("link", ["mnt/sub/10.tar", "link/sub/11.tar"]) as p:
    assert p._files == ["sub/10.tar", "sub/11.tar"], p._files
try:
    penstock.plan(".", ["mnt/sub/10.tar"])
    assert False
except FileNotFoundError as e:
    assert "not a penstock mount" in str(e) and e.filename == os.getcwd(), e
PY
equal "files of penstock.plan() are fetched in their order" "29 12 14" "$(order)"
