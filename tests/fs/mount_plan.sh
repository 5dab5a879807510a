#!/usr/bin/env bash
# Plans: written by ioctl, shown, followed ahead of the reader, and gone with their descriptor; what is told
# badly does no harm.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq

mkdir -p "$T/www/sub" "$T/www/long"
for i in {10..29}; do
	random_file "$T/www/sub/$i.tar" 1000000 "$i"
done
start_nginx
mount_penstock "$ORIGIN/"

# A teller whose lines we write one by one.
coproc TELL { exec "$python" "$top_srcdir/tests/fs/tell_plan.py" "$MNT/.penstock/plan" 2>"$T/tell.log"; }
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
equal "nothing is told yet" 0 "$(plans .active)"
equal "an epoch" ok \
	"$(tell '{"penstock_plan": 1, "job": "j\u00f6b", "rank": 3, "world": 8, "epoch": 7, "files": ["sub/15.tar", "no/such", "sub/12.tar"]}')"
equal "another, in several parts" ok \
	"$(tell "{\"penstock_plan\": 1, \"job\": \"jöb\", \"rank\": 3, \"epoch\": 8, \"x\": \"$(printf '%20000s' x)\", \"files\": [\"sub/16.tar\"]}")"
equal "is shown" "jöb 3 7 2 3" "$(plans '.ranks[0] | "\(.job) \(.rank) \(.epoch) \(.epochs) \(.files)"')"
equal "also in status" 1 "$(penstock status "$MNT" --json | jq '.plans.ranks | length')"
check "what is planned is fetched though nobody reads" wait_until 30 all_cached 15 12 16
equal "and nothing else" remote "$(state 13)"
equal "no JSON" EINVAL "$(tell 'hello')"
equal "another kind of line" ok "$(tell '{"penstock_wish": 1}')"
equal "a member is missing" EINVAL "$(tell '{"penstock_plan": 1, "job": "a", "rank": 0, "files": []}')"
equal "too many files" E2BIG \
	"$(tell "{\"penstock_plan\": 1, \"job\": \"a\", \"rank\": 0, \"epoch\": 0, \"files\": [\"a\"$(printf ',"a"%.0s' {1..100001})]}")"
equal "a position" ok "$(tell '{"penstock_position": 1, "job": "j\u00f6b", "rank": 3, "epoch": 8, "files_done": 1}')"
equal "is shown, and the epoch before is over" "8 1 1" \
	"$(plans '.ranks[0] | "\(.epoch) \(.files_done) \(.epochs)"')"
equal "of a rank that nobody told of" ESTALE \
	"$(tell '{"penstock_position": 1, "job": "j\u00f6b", "rank": 4, "epoch": 8, "files_done": 1}')"
equal "the first rank is still there" 1 "$(plans .active)"
check "Prometheus has it" grep -q '^penstock_plans_active{.*} 1$' "$MNT/.penstock/cache_metrics"

kill -KILL "$teller"
nothing_is_told() {
	[[ $(plans '.active + .memory_bytes') == 0 ]]
}
check "a plan ends with its descriptor, and takes no memory any more" wait_until 20 nothing_is_told
umount_penstock

mount_penstock "$ORIGIN/" --policy lru
equal "a policy that follows none says so" ENOTTY \
	"$(echo '{}' | "$python" "$top_srcdir/tests/fs/tell_plan.py" "$MNT/.penstock/plan")"
equal "and shows none" null "$(plans .)"
umount_penstock

# A version that is no longer current is confirmed ahead, and a file that was changed meanwhile is not taken
# for the old one.
planned='["sub/29.tar", "sub/21.tar", "sub/24.tar", "sub/27.tar", "sub/23.tar"]'
for revalidate in 1s open; do
	CACHE=$T/cache-$revalidate mount_penstock "$ORIGIN/" --revalidate "$revalidate"
	cat "$MNT/sub/29.tar" >/dev/null
	random_file "$T/www/sub/24.tar" 1000000 "changed-$revalidate"
	sleep 7
	origin_forget
	coproc TELL { exec "$python" "$top_srcdir/tests/fs/tell_plan.py" \
		"$MNT/.penstock/plan" 2>"$T/tell.log"; }
	disown "$TELL_PID"
	teller=$TELL_PID
	equal "--revalidate $revalidate: a plan" ok \
		"$(tell '{"penstock_plan": 1, "job": "a", "rank": 0, "epoch": 0, "files":'"$planned"'}')"
	check "--revalidate $revalidate: what is planned is fetched though its version is old" wait_until 20 \
		all_cached 21 23 27
	equal "--revalidate $revalidate: and what is cached already is not asked for" "21 23 24 27" \
		"$(awk '$2 ~ /tar$/ {print substr($2, 6, 2)}' "$T/nginx/access.log" | sort -u | xargs)"
	check "--revalidate $revalidate: a file that was changed is read as it is now" cmp "$MNT/sub/24.tar" \
		"$T/www/sub/24.tar"
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
check "what is new is listed" wait_until 60 listed
files=$(printf ', "long/%d.tar"' {21..10})
coproc TELL { exec "$python" "$top_srcdir/tests/fs/tell_plan.py" "$MNT/.penstock/plan" 2>"$T/tell.log"; }
teller=$TELL_PID
tell "{\"penstock_plan\": 1, \"job\": \"a\", \"rank\": 0, \"epoch\": 0, \"files\": [${files:2}]}" >"$T/told"
equal "a long plan" ok "$(cat "$T/told")"
long_cached() {
	[[ $(getfattr --only-values -n user.penstock.state "$MNT"/long/*.tar 2>/dev/null) == $(printf 'cached%.0s' {10..21}) ]]
}
check "is fetched whole" wait_until 60 long_cached
equal "the beginnings of all files before the rest of any" "$(printf '/long/%d.tar\n' {21..10})" \
	"$(awk '/GET/ && /\/long\/[0-9]/' "$T/nginx/access.log" | head -12 | grep -o '/long/[0-9]*.tar')"
kill -KILL "$teller"
umount_penstock

if ((EUID == 0)) && command -v setpriv >/dev/null; then
	mount_penstock "$ORIGIN/" -o allow_other
	cp "$top_srcdir/tests/fs/tell_plan.py" "$T/" && chmod 755 "$T" && chmod 644 "$T/tell_plan.py"
	for i in {1..100}; do
		echo "{\"penstock_plan\": 1, \"job\": \"a\", \"rank\": $i, \"epoch\": 0, \"files\": [\"sub/10.tar\"]}"
	done | setpriv --reuid 65534 --regid 65534 --clear-groups \
		"$python" "$T/tell_plan.py" "$MNT/.penstock/plan" >"$T/stranger"
	equal "who is neither root nor the mount's owner has a quarter of the ranks" "64 ok, 36 ENOSPC" \
		"$(grep -c ok "$T/stranger") ok, $(grep -c ENOSPC "$T/stranger") ENOSPC"
	umount_penstock
fi
