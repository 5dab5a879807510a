#!/usr/bin/env bash
# Plans: they are written by ioctl, shown, followed ahead of the reader, and end with their descriptor.
# Invalid plans are refused.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

mkdir -p "$T/www/sub" "$T/www/long"
for i in {10..29}; do
	random_file "$T/www/sub/$i.tar" 1000000 "$i"
done
start_nginx
mount_penstock "$ORIGIN/"

# A process that announces plans, to which this test writes lines one by one.
coproc TELL { exec "$python" "$top_srcdir/tests/fs/prefetch/tell_plan.py" "$MNT/.penstock/plan" 2>"$T/tell.log"; }
disown "$TELL_PID"
teller=$TELL_PID
tell() {
	local answer
	printf '%s\n' "$1" >&"${TELL[1]}"
	read -r -t 30 answer <&"${TELL[0]}"
	echo "$answer"
}
plans() {
	jq -r "$1" "$MNT/.penstock/plan"
}
state() {
	getfattr --only-values -n user.penstock.state "$MNT/sub/$1.tar" 2>/dev/null
}
all_cached() {
	local i
	for i; do [[ $(state "$i") == cached ]] || return 1; done
}

check_not "writing is refused by the kernel" bash -c "echo x >'$MNT/.penstock/plan'"
equal "at first no plan is active" 0 "$(plans .active)"
equal "the plan of an epoch is accepted" ok \
	"$(tell '{"penstock_plan": 1, "job": "j\u00f6b", "rank": 3, "world": 8, "epoch": 7, "files": ["sub/15.tar", "no/such", "sub/12.tar"]}')"
equal "the plan of another epoch, in several parts, is accepted" ok \
	"$(tell "{\"penstock_plan\": 1, \"job\": \"jöb\", \"rank\": 3, \"epoch\": 8, \"x\": \"$(printf '%20000s' x)\", \"files\": [\"sub/16.tar\"]}")"
equal "the plan is shown" \
	"jöb 3 7 2 3" "$(plans '.ranks[0] | "\(.job) \(.rank) \(.epoch) \(.epochs) \(.files)"')"
equal "status shows the plan" 1 "$(penstock status "$MNT" --json | jq '.plans.ranks | length')"
check "planned files are fetched before they are read" wait_until 30 all_cached 15 12 16
equal "files that are not planned are not fetched" remote "$(state 13)"
equal "a line that is not JSON is refused" EINVAL "$(tell 'hello')"
equal "an unknown kind of line is ignored" ok "$(tell '{"penstock_wish": 1}')"
equal "a plan without an epoch is refused" \
	EINVAL "$(tell '{"penstock_plan": 1, "job": "a", "rank": 0, "files": []}')"
equal "a plan with too many files is refused" E2BIG \
	"$(tell "{\"penstock_plan\": 1, \"job\": \"a\", \"rank\": 0, \"epoch\": 0, \"files\": [\"a\"$(printf ',"a"%.0s' {1..100001})]}")"
equal "a position is accepted" \
	ok "$(tell '{"penstock_position": 1, "job": "j\u00f6b", "rank": 3, "epoch": 8, "files_done": 1}')"
equal "the position is shown, and the epoch before is over" "8 1 1" \
	"$(plans '.ranks[0] | "\(.epoch) \(.files_done) \(.epochs)"')"
equal "a position of a rank without a plan is refused" ESTALE \
	"$(tell '{"penstock_position": 1, "job": "j\u00f6b", "rank": 4, "epoch": 8, "files_done": 1}')"
equal "the rank with a plan is still active" 1 "$(plans .active)"
check "the metrics have the active plan" \
	grep -q '^penstock_plans_active{.*} 1$' "$MNT/.penstock/cache_metrics"

kill -KILL "$teller"
nothing_is_told() {
	[[ $(plans '.active + .memory_bytes') == 0 ]]
}
check "a plan ends with its descriptor, and its memory is freed" wait_until 20 nothing_is_told
umount_penstock

mount_penstock "$ORIGIN/" --policy lru
equal "a policy without plans refuses a plan" ENOTTY \
	"$(echo '{}' | "$python" "$top_srcdir/tests/fs/prefetch/tell_plan.py" "$MNT/.penstock/plan")"
equal "a policy without plans shows none" null "$(plans .)"
umount_penstock

# Old versions are revalidated ahead of the reader, and a file that was changed meanwhile is read in its new
# version.
planned='["sub/29.tar", "sub/21.tar", "sub/24.tar", "sub/27.tar", "sub/23.tar"]'
for revalidate in 1s open; do
	CACHE=$T/cache-$revalidate mount_penstock "$ORIGIN/" --revalidate "$revalidate"
	cat "$MNT/sub/29.tar" >/dev/null
	random_file "$T/www/sub/24.tar" 1000000 "changed-$revalidate"
	sleep 7
	origin_forget
	coproc TELL { exec "$python" "$top_srcdir/tests/fs/prefetch/tell_plan.py" \
		"$MNT/.penstock/plan" 2>"$T/tell.log"; }
	disown "$TELL_PID"
	teller=$TELL_PID
	equal "--revalidate $revalidate: a plan is accepted" ok \
		"$(tell '{"penstock_plan": 1, "job": "a", "rank": 0, "epoch": 0, "files":'"$planned"'}')"
	check "--revalidate $revalidate: planned files are fetched although their versions are old" \
		wait_until 20 \
		all_cached 21 23 27
	equal "--revalidate $revalidate: a cached file is not asked for" "21 23 24 27" \
		"$(awk '$2 ~ /tar$/ {print substr($2, 6, 2)}' "$T/nginx/access.log" | sort -u | xargs)"
	check "--revalidate $revalidate: a changed file is read in its new version" cmp "$MNT/sub/24.tar" \
		"$T/www/sub/24.tar"
	tell '{"penstock_reads": 1, "files": ["sub/22.tar"]}' >"$T/told"
	check "--revalidate $revalidate: what is read now is fetched once its version is confirmed" \
		wait_until 20 all_cached 22
	kill -KILL "$teller"
	umount_penstock
done

# One request at a time, so that they are logged in the order in which they were made.
for i in {10..21}; do
	random_file "$T/www/long/$i.tar" 9000000 "$i"
done
: >"$T/nginx/access.log"
mount_penstock "$ORIGIN/" --max-connections 1
listed() { [[ $(stats '.mounts[0].listing') == false ]]; }
check "the listing ends" wait_until 60 listed
files=$(printf ', "long/%d.tar"' {21..10})
coproc TELL { exec "$python" "$top_srcdir/tests/fs/prefetch/tell_plan.py" "$MNT/.penstock/plan" 2>"$T/tell.log"; }
teller=$TELL_PID
tell "{\"penstock_plan\": 1, \"job\": \"a\", \"rank\": 0, \"epoch\": 0, \"files\": [${files:2}]}" >"$T/told"
equal "a long plan is accepted" ok "$(cat "$T/told")"
long_cached() {
	[[ $(getfattr --only-values -n user.penstock.state "$MNT"/long/*.tar 2>/dev/null) == $(printf 'cached%.0s' {10..21}) ]]
}
check "all files of the long plan are fetched" wait_until 60 long_cached
equal "the beginnings of all files are fetched before the rest of any" "$(printf '/long/%d.tar\n' {21..10})" \
	"$(awk '/GET/ && /\/long\/[0-9]/' "$T/nginx/access.log" | head -12 | grep -o '/long/[0-9]*.tar')"
kill -KILL "$teller"
umount_penstock

# A loader says where it reads now.
: >"$T/nginx/access.log"
CACHE=$T/cache-from mount_penstock "$ORIGIN/" --max-connections 1
check "the listing ends" wait_until 60 listed
coproc TELL { exec "$python" "$top_srcdir/tests/fs/prefetch/tell_plan.py" "$MNT/.penstock/plan" 2>"$T/tell.log"; }
teller=$TELL_PID
files='["long/12.tar", "no/such", "long/11.tar", "long/10.tar"]'
tell '{"penstock_reads": 1, "from": [4900000, 7, 6900000], "bytes": 1500000, "files": '"$files}" >"$T/told"
equal "what is read now is accepted" ok "$(cat "$T/told")"
equal "it is no plan" 0 "$(plans .active)"
parts_cached() {
	(($(awk '/GET/ && /\/long\/[0-9]/' "$T/nginx/access.log" | wc -l) >= 3))
}
check "the origin is asked" wait_until 60 parts_cached
asked=$(sed -En 's/.*GET (.*tar).*=([0-9]+)-([0-9]+).*/\1 \2 \3/p' "$T/nginx/access.log" | head -3 | xargs)
equal "what is read now is fetched, from its offsets" \
	"/long/12.tar 4849664 6422527 /long/11.tar 6881280 8454143 /long/10.tar 0 1507327" "$asked"
equal "without files it is refused" EINVAL "$(tell '{"penstock_reads": 1}' >"$T/told" && cat "$T/told")"
# A plan may say how far its rank is, so that files that are done are not fetched.
files='["long/13.tar", "long/14.tar", "long/15.tar"]'
tell '{"penstock_plan": 1, "job": "a", "rank": 0, "epoch": 3, "files_done": 2, "files": '"$files}" >"$T/told"
equal "a plan with a position is accepted" "ok 2" "$(cat "$T/told") $(plans '.ranks[0].files_done')"
check "what is left of it is fetched" wait_until 30 grep -q GET.*/long/15.tar "$T/nginx/access.log"
equal "what is done is not" 0 "$(grep -c 'GET.*/long/1[34].tar' "$T/nginx/access.log")"
for from in '"from": 3' '"from": [3, "x"]' '"from": [-1]' '"bytes": [1]'; do
	tell '{"penstock_reads": 1, "files": [], '"$from}" >"$T/told"
	equal "$from is refused" EINVAL "$(cat "$T/told")"
done
kill -KILL "$teller"
umount_penstock

if ((EUID == 0)) && command -v setpriv >/dev/null; then
	mount_penstock "$ORIGIN/" -o allow_other
	cp "$top_srcdir/tests/fs/prefetch/tell_plan.py" "$T/" && chmod 755 "$T" && chmod 644 "$T/tell_plan.py"
	for i in {1..100}; do
		echo "{\"penstock_plan\": 1, \"job\": \"a\", \"rank\": $i, \"epoch\": 0, \"files\": [\"sub/10.tar\"]}"
	done | setpriv --reuid 65534 --regid 65534 --clear-groups \
		"$python" "$T/tell_plan.py" "$MNT/.penstock/plan" >"$T/stranger"
	equal "users other than root and the owner may announce a quarter of the ranks" "64 ok, 36 ENOSPC" \
		"$(grep -c ok "$T/stranger") ok, $(grep -c ENOSPC "$T/stranger") ENOSPC"
	umount_penstock
fi
