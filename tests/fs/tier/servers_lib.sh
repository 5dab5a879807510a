# shellcheck shell=bash
# Tests of the servers that scripts/tier/ starts, with each of them the same. Sourced after lib.sh.
#
#   start_tier_origin [tls]  serves $T/data: OURS is its URL, OURS_HOST the host in it, OURS_LOG its log
#   start_tier ENGINE OPTION...  TIER is its URL; a cache in $T/tier; the first call chooses the port
#   stop_tier                stops the tier that start_tier started last
#   get PATH RANGE CURL-OPTION...  asks the tier as a mount would: the body in $T/got; prints the status
#   brought TEXT             how many GETs that match TEXT have reached the origin
#   tier_keeps_ranges, ...   what all of them do; a server that does it otherwise says so in its test

: "${python:?}" "${top_srcdir:?}" # lib.sh has set them

start_tier_origin() {
	local try certificate=() scheme=http
	mkdir -p "$T/data" "$T/origin"
	((EUID != 0)) || chmod 755 "$T" # the servers run as users of their own
	if [[ ${1-} == tls ]]; then
		scheme=https certificate=("$T/origin/s.crt" "$T/origin/s.key")
		ps_make_certificates "$T/origin"
		chmod 644 "$T/origin/ca.pem"
	fi
	OURS_LOG=$T/origin/requests
	: >"$OURS_LOG"
	for try in 1 2 3; do
		ours_port=$(free_port)
		"$python" "$top_srcdir/tests/fs/tier/origin.py" "$T/data" "$ours_port" "$OURS_LOG" \
			${certificate[@]+"${certificate[@]}"} \
			2>"$T/origin.log" &
		export OURS_PID=$!
		OURS_HOST=127.0.0.1:$ours_port
		[[ $scheme == http ]] || OURS_HOST=localhost:$ours_port
		OURS=$scheme://$OURS_HOST
		! wait_until 10 curl -sk -o /dev/null "$OURS/" || break
		((try < 3)) || die "the origin starts" "$(cat "$T/origin.log")"
	done
	random_file "$T/data/shard.tar" $((9 << 20)) 1
	random_file "$T/data/odd.tar" 5000001
	cp "$T/data/odd.tar" "$T/data/a b%20+&#~;.tar"
	: >"$OURS_LOG"
}

start_tier() {
	local engine=$1
	shift
	tier_engine=$engine
	: "${tier_port:=$(free_port)}"
	mkdir -p "$T/tier"
	TIER=http://127.0.0.1:$tier_port
	"$top_srcdir/scripts/tier/$engine" --nodes "127.0.0.1:$tier_port" --dir "$T/tier" --size 256M \
		"$@" >"$T/start.log" 2>&1 ||
		die "$engine starts" "$(cat "$T/start.log")" \
			"$(tail -n 20 "$T"/tier/*.log "$T"/tier/*/*.log 2>/dev/null)"
	# (Traffic Server reads /etc/hosts, where "localhost" is, in its first second.)
	! kill -0 "$OURS_PID" 2>/dev/null || wait_until 10 ps_tier_knows_origin ||
		die "$engine reaches the origin"
}
ps_tier_knows_origin() { [[ $(get /none 0-0) == 404 ]]; }
stop_tier() {
	"$top_srcdir/scripts/tier/$tier_engine" --dir "$T/tier" --stop >"$T/stop.log" 2>&1 ||
		die "it stops" "$(cat "$T/stop.log")"
}

etag_of() { # FILE
	echo "\"$(md5sum <"$T/data/$1" | cut -c 1-32)\""
}

get() {
	local path=$1 range=$2
	shift 2
	rm -f "$T/got"
	# curl would leave out an empty query.
	curl -s -m 30 --request-target "$path" -o "$T/got" -w '%{http_code}\n' -r "$range" \
		-H "Host: $OURS_HOST" "$@" "$TIER$path" || true
}
ps_status() { curl -s -m 10 -o "$T/got" -w '%{http_code}' "$@"; }
brought() { grep -c -- "^GET .*$1" "$OURS_LOG" || true; }

# got_is FILE FIRST LAST: the body is these bytes of the file.
got_is() {
	cmp "$T/got" <(tail -c "+$(($2 + 1))" "$T/data/$1" | head -c $(($3 - $2 + 1)))
}

# All slices, twice: with their bytes, and from the origin once.
tier_keeps_ranges() {
	local turn range status etag
	etag=$(etag_of shard.tar)
	for turn in first second; do
		for range in 0-4194303 4194304-8388607 8388608-9437183; do
			status=$(get /d/shard.tar "$range" -H "If-Match: $etag")
			equal "the $turn request for $range is answered with 206" 206 "$status"
			check "bytes $range, $turn time" got_is shard.tar "${range%-*}" "${range#*-}"
		done
	done
	equal "each slice is fetched once" 3 "$(brought "/d/shard.tar 206")"
	equal "the origin was asked for the version and the slice" 1 \
		"$(brought " bytes=4194304-8388607 $etag $OURS_HOST -")"
}

# A request for a part of a slice fetches the whole slice, once. A range across slices is made of them.
tier_has_slices() {
	local range etag
	etag=$(etag_of shard.tar)
	: >"$OURS_LOG"
	for range in 100-299 5000-4000000 4000000-8400000 9000000-9437183; do
		equal "a part of slices: $range" 206 "$(get /parts/shard.tar "$range" -H "If-Match: $etag")"
		check "has its bytes" got_is shard.tar "${range%-*}" "${range#*-}"
	done
	equal "they are three slices, each from the origin once" "0-4194303 4194304-8388607 8388608-" \
		"$(awk '{print substr($5, 7)}' "$OURS_LOG" | sed 's/12582911$\|9437183$//' | sort -n | xargs)"
	: >"$OURS_LOG"
	equal "a part that is not kept, as it has no version" 206 "$(get /parts/odd.tar 100-299)"
	equal "is asked for as it is" 1 "$(brought "/parts/odd.tar 206 200 bytes=100-299 - $OURS_HOST -")"
}

# Path and query arrive as the mount wrote them, or its signature would be wrong.
tier_keeps_spelling() { # PATH...: further ones
	local path
	: >"$OURS_LOG"
	for path in '/e/a%20b%2520%2B&%23~;.tar' '/f/a%20b%2520+%26%23%7E%3b.tar' \
		'/d//odd.tar?a=%2F&b=c%20d+e&versionId=x~%7E' "$@"; do
		get "$path" 0-4194303 -H "If-Match: $(etag_of odd.tar)" >/dev/null
		check "$path has the bytes" got_is odd.tar 0 4194303
		equal "$path arrives as it is" "GET $path" "$(tail -n 1 "$OURS_LOG" | cut -d ' ' -f 1,2)"
	done
}

# Queries and versions are parts of the key.
tier_keeps_apart() {
	local etag
	etag=$(etag_of odd.tar)
	: >"$OURS_LOG"
	get '/apart/odd.tar?versionId=1' 0-4194303 -H "If-Match: $etag" >/dev/null
	get '/apart/odd.tar?versionId=2' 0-4194303 -H "If-Match: $etag" >/dev/null
	get '/apart/odd.tar?versionId=1' 0-4194303 -H "If-Match: $etag" >/dev/null
	equal "each versionId is a copy of its own" 2 "$(brought /apart/)"
}

# What has no version is not kept.
tier_keeps_versions_only() {
	: >"$OURS_LOG"
	get /plain/odd.tar 0-4194303 >/dev/null
	get /plain/odd.tar 0-4194303 >/dev/null
	check "without If-Match the bytes are the origin's" got_is odd.tar 0 4194303
	equal "and are not kept" 2 "$(brought /plain/)"
	equal "a HEAD is answered" 200 \
		"$(ps_status -I -H "Host: $OURS_HOST" "$TIER/plain/odd.tar")"
	equal "by the origin, as a HEAD" 1 "$(grep -c '^HEAD /plain/' "$OURS_LOG")"
}

# Eight ask for a slice that the tier does not have; the origin needs more than a second.
tier_has_one_flight() {
	local i readers=() etag
	etag=$(etag_of shard.tar)
	: >"$OURS_LOG"
	for i in {1..8}; do
		curl -s -m 30 -o "$T/flight$i" -r 0-4194303 -H "Host: $OURS_HOST" -H "If-Match: $etag" \
			"$TIER/slow/shard.tar" &
		readers+=($!)
	done
	wait "${readers[@]}" || true
	for i in {1..8}; do
		check "reader $i of eight at once has the bytes" \
			cmp -s "$T/flight$i" <(head -c 4194304 "$T/data/shard.tar")
	done
	equal "and the origin sent one copy" 1 "$(brought /slow/)"
}

# An object that changes under its name.
tier_sees_changes() {
	local old new
	random_file "$T/data/changing.tar" $((9 << 20)) 1
	old=$(etag_of changing.tar)
	equal "the first slice of a version" 206 "$(get /d/changing.tar 0-4194303 -H "If-Match: $old")"
	cp "$T/data/changing.tar" "$T/old"
	random_file "$T/data/changing.tar" $((9 << 20)) 2
	new=$(etag_of changing.tar)
	equal "a slice of it that was not kept is refused: 412" 412 \
		"$(get /d/changing.tar 4194304-8388607 -H "If-Match: $old")"
	equal "the new version is another copy" 206 "$(get /d/changing.tar 0-4194303 -H "If-Match: $new")"
	check "with its own bytes" got_is changing.tar 0 4194303
	equal "a 412 is not kept" 412 "$(get /d/changing.tar 4194304-8388607 -H "If-Match: $old")"
	equal "as the origin was asked twice" 2 "$(brought "/d/changing.tar 412")"
}

# An origin that ignores If-Match sends another version: the tier never gives it out as the requested one.
tier_takes_no_other_version() {
	local turn status etag
	for turn in first second; do
		status=$(get /ignoring/odd.tar 0-4194303 -H 'If-Match: "other"' -D "$T/head")
		etag=$(tr -d '\r' <"$T/head" | awk 'tolower($1) == "etag:" {print $2}')
		check "another version is refused or named, the $turn time ($status, $etag)" \
			test "$status:$etag" != '206:"other"' -a '(' "$status" != 206 -o "$etag" = "$(etag_of odd.tar)" ')'
	done
}

# What came with credentials is given only to requests that have credentials, too.
tier_keeps_private() {
	local etag
	etag=$(etag_of odd.tar)
	: >"$OURS_LOG"
	equal "a private object with credentials" 206 \
		"$(get /private/odd.tar 0-4194303 -H "If-Match: $etag" -H 'Authorization: Bearer good')"
	equal "is refused without" 403 "$(get /private/odd.tar 0-4194303 -H "If-Match: $etag")"
	check_not "and not a byte of it is sent" got_is odd.tar 0 4194303
	equal "as the origin said" 1 "$(brought "/private/odd.tar 403")"
	equal "with credentials it is kept" 206 \
		"$(get /private/odd.tar 0-4194303 -H "If-Match: $etag" -H 'Authorization: Bearer good')"
	equal "so that the origin sent it once" 1 "$(brought "/private/odd.tar 206")"
	equal "a private object by a header of --secret-header" 206 \
		"$(get /private/shard.tar 0-4194303 -H "If-Match: $(etag_of shard.tar)" -H 'X-Token: secret')"
	equal "is refused without it, too" 403 \
		"$(get /private/shard.tar 0-4194303 -H "If-Match: $(etag_of shard.tar)")"
	equal "what the origin tells browsers not to keep" 206 \
		"$(get /hidden/odd.tar 0-4194303 -H "If-Match: $etag" -H 'Authorization: Bearer good')"
	get /hidden/odd.tar 0-4194303 -H "If-Match: $etag" -H 'Authorization: Bearer good' >/dev/null
	equal "is kept under its version" 1 "$(brought /hidden/)"
}

# The tier fetches nothing from servers that are not its origins.
tier_is_no_open_proxy() {
	local other status
	other=127.0.0.1:$(free_port)
	mkdir -p "$T/other"
	echo secret >"$T/other/odd.tar"
	: >"$T/other.log"
	"$python" "$top_srcdir/tests/fs/tier/origin.py" "$T/other" "${other#*:}" "$T/other.requests" \
		2>"$T/other.log" &
	wait_until 10 curl -s -o /dev/null "http://$other/odd.tar"
	: >"$T/other.requests"
	status=$(ps_status -H "Host: $other" "$TIER/odd.tar" || true)
	check "another host's objects are refused ($status)" [ "$status" -ge 400 ]
	status=$(ps_status -x "$TIER" "http://$other/odd.tar" || true)
	check "also when it is asked as a proxy ($status)" [ "$status" -ge 400 ]
	status=$(curl -s -m 10 -p -o "$T/got" -w '%{http_connect}' -x "$TIER" "http://$other/odd.tar" || true)
	check "or for a tunnel ($status)" [ "$status" -ge 400 ]
	status=$(ps_status -x "$TIER" -H "Host: $OURS_HOST" "http://$other/odd.tar" || true)
	equal "or with two hosts ($status): nothing has asked the other server" "" \
		"$(cat "$T/other.requests")"
	: >"$OURS_LOG"
	status=$(ps_status -T "$T/data/odd.tar" -H "Host: $OURS_HOST" "$TIER/put" || true)
	check "a PUT is refused ($status)" [ "$status" -ge 400 ]
	equal "and does not reach the origin" "" "$(cat "$OURS_LOG")"
}

# What is kept survives.
tier_survives_restart() { # ENGINE OPTION...
	get /kept/shard.tar 0-4194303 -H "If-Match: $(etag_of shard.tar)" >/dev/null
	sleep "${TIER_SYNC_SECONDS:-0}"
	stop_tier
	check_not "a stopped tier does not answer" curl -s -m 2 "$TIER/"
	start_tier "$@"
	: >"$OURS_LOG"
	equal "after a restart" 206 "$(get /kept/shard.tar 0-4194303 -H "If-Match: $(etag_of shard.tar)")"
	check "the bytes are the same" got_is shard.tar 0 4194303
	equal "and come from the tier" 0 "$(brought /kept/)"
}
