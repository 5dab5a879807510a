#!/usr/bin/env bash
# The files of scripts/monitoring with Debian's node_exporter and Prometheus: two mounts of two caches are
# scraped through the text file; each query of the Grafana dashboard has a result; no alert fires.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq curl
long || skip_all "runs with scripts/check --all"
for program in promtool prometheus prometheus-node-exporter; do
	command -v "$program" >/dev/null || skip_all "$program is not installed"
done

monitoring=$top_srcdir/scripts/monitoring
check "promtool accepts the rules" promtool check rules "$monitoring/penstock.rules.yml"
check "each alert fires for its cause and only then" \
	promtool test rules "$monitoring/penstock.rules_test.yml"

make_tree "$T/www"
start_nginx
mkdir "$T/mnt2" "$T/text"
mount_penstock "$ORIGIN/" --no-passthrough
check "a mount of another cache" penstock mount "$ORIGIN/" "$T/mnt2" --cache-dir "$T/cache2" --no-passthrough
check "both are read" diff -r "$MNT" "$T/mnt2" -x .penstock
write() { penstock metrics --output "$T/text/penstock.prom"; }
check "metrics writes a file" write
equal "all users may read that file" 644 "$(stat -c %a "$T/text/penstock.prom")"
equal "metrics writes no other file" penstock.prom "$(ls "$T/text")"
check_not "metrics to a missing folder fails" penstock metrics --output "$T/nothing/penstock.prom"

node=$(free_port) server=$(free_port)
cat >"$T/prometheus.yml" <<-END
	global: {scrape_interval: 1s, evaluation_interval: 1s}
	rule_files: [$(cd "$monitoring" && pwd)/penstock.rules.yml]
	scrape_configs:
	  - job_name: node
	    static_configs: [{targets: ["127.0.0.1:$node"]}]
END
prometheus-node-exporter --web.listen-address="127.0.0.1:$node" \
	--collector.disable-defaults --collector.textfile \
	--collector.textfile.directory="$T/text" >"$T/node.log" 2>&1 &
prometheus --config.file="$T/prometheus.yml" --storage.tsdb.path="$T/tsdb" \
	--web.listen-address="127.0.0.1:$server" >"$T/prometheus.log" 2>&1 &
# query EXPRESSION: prints how many series the result has.
query() {
	curl -sf "http://127.0.0.1:$server/api/v1/query" --data-urlencode "query=$1" |
		jq '[.data.result[] | select(.value[1] != "NaN")] | length'
}
has() { [[ $(query "$1") -ge $2 ]]; }
check "Prometheus has both caches" wait_until 30 has penstock_info 2
# Rates need traffic between two scrapes.
traffic() {
	penstock evict "$MNT" >/dev/null && read_tree 1m && write &&
		has 'rate(penstock_origin_bytes_total[30s]) > 0' 1
}
check "Prometheus has rates" wait_until 30 traffic
while IFS=$'\t' read -r title expression; do
	expression=${expression//\$__rate_interval/30s}
	expression=${expression//\$instance/.*}
	expression=${expression//\$cache_dir/.*}
	check "the dashboard's panel has a result: $title" has "$expression" 1
done < <(jq -r '.panels[] | .title as $t | .targets[] | [$t, .expr] | @tsv' "$monitoring/grafana.json")
equal "the dashboard's variables have values" 2 "$(query 'count by (cache_dir) (penstock_info)')"
equal "no alert fires" "" "$(curl -sf "http://127.0.0.1:$server/api/v1/alerts" |
	jq -r '.data.alerts[].labels.alertname')"
kill_daemon
down() { write && has 'ALERTS{alertname="PenstockDown"}' 1; }
check "an alert fires when a daemon is gone" wait_until 30 down
check "umount removes the dead daemon's mount" penstock umount "$MNT"
check "the other mount is unmounted" penstock umount "$T/mnt2"
