#!/usr/bin/env bash
# Proxies: from the environment of the mounting process or by --proxy, for http and for https (CONNECT), with
# credentials that are shown nowhere; hosts of no_proxy are asked directly.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx tinyproxy curl

make_tree "$T/www"
start_nginx
mkdir "$T/proxy"

start_proxy() { # [BASIC-AUTH]: sets PROXY (host:port)
	local try port
	for try in 1 2 3 4 5; do
		port=$(free_port)
		printf '%s\n' "Port $port" "Listen 127.0.0.1" "Timeout 60" "MaxClients 100" \
			"LogFile \"$T/proxy/log\"" \
			"LogLevel Connect" ${1:+"BasicAuth $1"} >"$T/proxy/conf"
		tinyproxy -d -c "$T/proxy/conf" >"$T/proxy/out" 2>&1 &
		proxy_pid=$!
		PROXY=127.0.0.1:$port
		wait_until 20 proxy_is_there_or_gone
		kill -0 "$proxy_pid" 2>/dev/null && return
	done
	die "the proxy starts" "try $try" "$(cat "$T/proxy/out")"
}
proxy_is_there_or_gone() {
	! kill -0 "$proxy_pid" 2>/dev/null || (exec 9<>"/dev/tcp/${PROXY/:/\/}") 2>/dev/null
}
stop_proxy() {
	kill "$proxy_pid"
	wait "$proxy_pid" || true
}
# Prints how many requests the proxy received since the last call.
asked_proxy() {
	local n
	n=$(grep -cE 'Request.*(GET|HEAD|CONNECT)' "$T/proxy/log" || true)
	echo $((n - asked))
	asked=$n
}
asked=0

works() { # WHAT THROUGH OPTIONS...
	local what=$1 through=$2 n
	shift 2
	CACHE=$T/cache-$((++works))
	check "$what: mounts" mount_penstock "$@"
	check "$what: right bytes" read_tree 1m
	umount_penstock
	n=$(asked_proxy)
	asked=$((asked + n))
	equal "$what: the proxy is used or not, as expected" "$through" "$((n > 0))"
}
works=0

says() { grep -Eqi "$1" "$T/out" || { cat "$T/out" && false; }; }
refused() { # WHAT WORDS SOURCE OPTION...
	local what=$1 words=$2 rc=0
	shift 2
	CACHE=$T/cache-refused mount_penstock "$@" >"$T/out" 2>&1 || rc=$?
	equal "$what: fails" 1 "$((rc != 0))"
	equal "$what: in one line" 1 "$(wc -l <"$T/out")"
	check "$what: the line says why" says "$words"
}

start_proxy
works "no proxy" 0 "$ORIGIN/"
http_proxy=http://$PROXY works "http_proxy" 1 "$ORIGIN/"
https_proxy=$PROXY works "https_proxy for an http source" 0 "$ORIGIN/"
https_proxy=$PROXY works "https_proxy" 1 "$ORIGIN_TLS/" --cacert "$T/nginx/ca.pem"
ALL_PROXY=http://$PROXY works "ALL_PROXY" 1 "$ORIGIN/"
works "--proxy" 1 "$ORIGIN/" --proxy "http://$PROXY"
http_proxy=http://$PROXY no_proxy=localhost,127.0.0.1 works "no_proxy" 0 "$ORIGIN/"
http_proxy=http://$PROXY NO_PROXY="*" works "NO_PROXY of all" 0 "$ORIGIN/"
http_proxy=http://$PROXY works "--proxy none" 0 "$ORIGIN/" --proxy none
refused "a proxy of an unknown kind" 'option proxy.*not a known kind of proxy' "$ORIGIN/" --proxy ftp://x
stop_proxy
refused "a proxy that does not run" 'connect' "$ORIGIN/" --proxy "http://$PROXY"

start_proxy "me s3cretPROXY"
https_proxy=http://me:s3cretPROXY@$PROXY works "a proxy with credentials, https" 1 "$ORIGIN_TLS/" \
	--cacert "$T/nginx/ca.pem"
works "a proxy with credentials, http" 1 "$ORIGIN/" --proxy "http://me:s3cretPROXY@$PROXY"
refused "a proxy with wrong credentials, https" 'from the proxy: it requires credentials, or others' "$ORIGIN_TLS/" \
	--cacert "$T/nginx/ca.pem" \
	--proxy "http://me:s3cretWRONG@$PROXY"
refused "a proxy without credentials, http" 'proxy requires credentials' "$ORIGIN/" --proxy "http://$PROXY"

CACHE=$T/cache-secret
mount_penstock "$ORIGIN/" --proxy "http://me:s3cretPROXY@$PROXY"
in_ps() { tr '\0' ' ' <"/proc/$(daemon_pid)/cmdline" | grep -q s3cret; }
check_not "no command line shows a proxy's password" in_ps
umount_penstock
check_not "no log has a proxy's password" grep -q s3cret "$T/penstock.log"
in_caches() { grep -rl s3cret "$T"/cache-*; }
check_not "no cache has a proxy's password" in_caches
