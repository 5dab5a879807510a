#!/usr/bin/env bash
# Varnish as scripts/tier/varnish starts it: ranges of objects, each from the origin once, only for
# clients who may have them; by curl. What it keeps does not survive its end.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/servers_lib.sh"
requires varnishd curl

start_tier_origin
check_not "an origin that speaks TLS is refused" "$top_srcdir/scripts/tier/varnish" --print --origin \
	https://host
options=(varnish --origin "$OURS" --secret-header X-Token)
start_tier "${options[@]}"
tier_keeps_ranges
tier_keeps_spelling //d//odd.tar '/d/odd.tar?'
tier_keeps_apart
tier_keeps_versions_only
tier_has_one_flight
tier_sees_changes
tier_keeps_private
tier_takes_no_other_version
tier_is_no_open_proxy
stop_tier
