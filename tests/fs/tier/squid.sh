#!/usr/bin/env bash
# Squid as scripts/tier/squid starts it: whole objects, kept by version, of what needs no credentials; by
# curl.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/servers_lib.sh"
requires squid curl

start_tier_origin
check_not "an origin that speaks TLS is refused" "$top_srcdir/scripts/tier/squid" --print --origin \
	https://host
options=(squid --origin "$OURS" --secret-header X-Token)
start_tier "${options[@]}"
etag=$(etag_of shard.tar)
equal "a slice" 206 "$(get /d/shard.tar 4194304-8388607 -H "If-Match: $etag")"
check "has its bytes" got_is shard.tar 4194304 8388607
equal "the origin is asked for the whole object" 1 "$(brought "/d/shard.tar 200 9437184 - $etag")"
equal "another slice of it" 206 "$(get /d/shard.tar 8388608-9437183 -H "If-Match: $etag")"
check "has its bytes, too" got_is shard.tar 8388608 9437183
equal "and comes from the tier" 1 "$(brought /d/shard.tar)"
tier_keeps_spelling
tier_keeps_apart
tier_keeps_versions_only
tier_takes_no_other_version
tier_is_no_open_proxy
random_file "$T/data/changing.tar" 5000000 1
old=$(etag_of changing.tar)
get /d/changing.tar 0-4194303 -H "If-Match: $old" >/dev/null
random_file "$T/data/changing.tar" 5000000 2
equal "the new version of an object" 206 \
	"$(get /d/changing.tar 0-4194303 -H "If-Match: $(etag_of changing.tar)")"
check "is another copy" got_is changing.tar 0 4194303
equal "a version that is neither kept nor there is refused: 412" 412 \
	"$(get /d/changing.tar 0-4194303 -H 'If-Match: "older"')"
tier_has_one_flight
etag=$(etag_of odd.tar)
: >"$OURS_LOG"
for credentials in good good none; do
	status=$(get /private/odd.tar 0-4194303 -H "If-Match: $etag" -H "Authorization: Bearer $credentials")
done
equal "what needs credentials is not kept: wrong ones are refused" 403 "$status"
equal "and right ones ask the origin each time" 2 "$(brought "/private/odd.tar 20")"
equal "a header of --secret-header gives" 206 \
	"$(get /private/odd.tar 0-4194303 -H "If-Match: $etag" -H 'X-Token: secret')"
equal "what is refused without it" 403 "$(get /private/odd.tar 0-4194303 -H "If-Match: $etag")"
tier_survives_restart "${options[@]}"
stop_tier
