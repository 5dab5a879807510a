#!/usr/bin/env bash
# nginx as scripts/tier/nginx starts it: slices of objects, each from the origin once, only for clients who
# may have them; by curl.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/servers_lib.sh"
requires nginx curl

start_tier_origin tls
options=(nginx --origin "$OURS" --cacert "$T/origin/ca.pem" --secret-header X-Token
	--access-log "$T/tier-access")
start_tier "${options[@]}"
tier_keeps_ranges
tier_has_slices
tier_keeps_spelling //d//odd.tar '/d/odd.tar?'
tier_keeps_apart
tier_keeps_versions_only
equal "a weak version is not kept" "412 412 2" "$(
	: >"$OURS_LOG"
	echo "$(get /d/weak/odd.tar 0-9 -H 'If-Match: W/"x"')" \
		"$(get /d/weak/odd.tar 0-9 -H 'If-Match: W/"x"')" "$(brought /d/weak/)"
)"
tier_has_one_flight
tier_sees_changes
tier_keeps_private
tier_takes_no_other_version
tier_is_no_open_proxy
tier_survives_restart "${options[@]}"

# An origin that ignores If-Match.
: >"$OURS_LOG"
equal "an answer of another version is refused" 412 \
	"$(get /ignoring/odd.tar 0-4194303 -H 'If-Match: "other"')"
get /ignoring/odd.tar 0-4194303 -H 'If-Match: "other"' >/dev/null
equal "and not kept" 2 "$(brought /ignoring/)"

# Signed queries are a part of the key, unless their host is listed.
signed='X-Amz-Algorithm=a&X-Amz-Date=1&response-content-type=x&X-Amz-Signature=good&x-id=1'
again='X-Amz-Algorithm=a&X-Amz-Date=2&response-content-type=x&X-Amz-Signature=good2&x-id=1'
version=$(etag_of odd.tar)
: >"$OURS_LOG"
for query in "$signed" "$again"; do get "/private/odd.tar?$query" 0-4194303 -H "If-Match: $version" \
	>/dev/null; done
equal "by default two signatures are two copies" 2 "$(brought "X-Amz-Signature=good")"
stop_tier
start_tier "${options[@]}" --strip-query localhost
: >"$OURS_LOG"
for query in "$signed" "$again"; do
	equal "a presigned URL of a listed host" 206 \
		"$(get "/private/odd.tar?$query" 0-4194303 -H "If-Match: $version")"
done
equal "is one copy" 1 "$(brought "X-Amz-Signature=good")"
equal "with the query as it was signed" 1 "$(brought "odd.tar?$signed 206")"
equal "which no one gets without a signature" 403 \
	"$(get '/private/odd.tar?response-content-type=x&x-id=1' 0-4194303 -H "If-Match: $version")"
get "/private/odd.tar?${signed/type=x/type=y}" 0-4194303 -H "If-Match: $version" >/dev/null
equal "another response-content-type is another copy" 1 "$(brought "response-content-type=y")"

# With --check-each the origin is asked who may read, each time.
get /private/shard.tar 0-4194303 -H "If-Match: $(etag_of shard.tar)" -H 'X-Token: secret' >/dev/null
equal "without --check-each any credentials will do" 206 \
	"$(get /private/shard.tar 0-4194303 -H "If-Match: $(etag_of shard.tar)" \
		-H 'Authorization: Bearer wrong')"
stop_tier
start_tier "${options[@]}" --check-each
: >"$OURS_LOG"
get /private/each/odd.tar 0-4194303 -H "If-Match: $version" -H 'Authorization: Bearer good' >/dev/null
equal "with it wrong ones are refused" 403 \
	"$(get /private/each/odd.tar 0-4194303 -H "If-Match: $version" -H 'Authorization: Bearer wrong')"
equal "right ones are not" 206 \
	"$(get /private/each/odd.tar 0-4194303 -H "If-Match: $version" -H 'Authorization: Bearer good')"
equal "for each of the three requests the origin was asked for one byte" 3 "$(brought " bytes=0-0 $version")"
equal "and one slice was fetched" 1 "$(brought "206 4194304 bytes=0-4194303")"
cp "$T/data/odd.tar" "$T/data/new.tar"
get /d/new.tar 0-4194303 -H "If-Match: $version" >/dev/null
echo more >>"$T/data/new.tar"
equal "an object that changed is found at once: 412" 412 "$(get /d/new.tar 0-4194303 -H "If-Match: $version")"
equal "one that is gone, too: 404" 404 "$(
	rm "$T/data/new.tar"
	get /d/new.tar 0-4194303 -H "If-Match: $version"
)"

# The cache stays within its size, here 64 MiB of the 256 that it shares with mounts. (What was kept before a
# start is counted a minute after it.)
stop_tier
rm -r "$T/tier/cache"
start_tier "${options[@]}" --dataset 40M
check "the start prints the mounts' --tier-cache and --cache-size" \
	grep -q -- "--tier-cache $T/tier/cache --cache-size 256M$" "$T/start.log"
for i in {1..10}; do
	for range in 0-4194303 4194304-8388607 8388608-9437183; do
		get "/many/shard.tar?$i" "$range" -H "If-Match: $(etag_of shard.tar)" >/dev/null
	done
done
kept() { du -sm "$T/tier/cache" | cut -f 1; }
within() { (($(kept) <= 66)); }
check "of 94 MB at most 64 MiB are kept" wait_until 30 within
at_least "what fits stays" 40 "$(kept)"
: >"$OURS_LOG"
get "/many/shard.tar?10" 8388608-9437183 -H "If-Match: $(etag_of shard.tar)" >/dev/null
equal "the newest slice is still there" 0 "$(brought /many/)"

# An origin that answers no more.
get /down/odd.tar 0-4194303 -H "If-Match: $version" -H 'Authorization: Bearer good' >/dev/null
stop_tier
start_tier "${options[@]}"
kill "$OURS_PID"
equal "what is kept is given without the origin" 206 \
	"$(get /down/odd.tar 0-4194303 -H "If-Match: $version" -H 'Authorization: Bearer good')"
equal "what is not ends in 502" 502 "$(get /down/shard.tar 0-4194303 -H "If-Match: $(etag_of shard.tar)")"
stop_tier
