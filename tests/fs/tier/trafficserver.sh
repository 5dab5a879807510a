#!/usr/bin/env bash
# Apache Traffic Server as scripts/tier/trafficserver starts it: slices of objects, each from the origin
# once, only for clients who may have them; by curl.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/servers_lib.sh"
requires traffic_server curl

start_tier_origin tls
options=(trafficserver --origin "$OURS" --secret-header X-Token --cacert "$T/origin/ca.pem")
TIER_SYNC_SECONDS=25 # its index is written every 10 s, in some steps
start_tier "${options[@]}"
tier_keeps_ranges
tier_has_slices
tier_keeps_spelling
tier_keeps_apart
tier_keeps_versions_only
tier_has_one_flight
tier_sees_changes
tier_keeps_private
tier_takes_no_other_version
tier_is_no_open_proxy
tier_survives_restart "${options[@]}"
stop_tier
