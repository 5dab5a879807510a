#!/usr/bin/env bash
# --help of each command and its manual page name the same options; usage and dispatch name the same commands.
. "$(dirname "$0")/../../lib.sh"
requires penstock

man=$top_srcdir/man
commands=$(penstock --help | awk '/^Commands:/ {on = 1; next} /^Options:/ {on = 0} on && $1 ~ /^[a-z]/ {print $1}')
equal "--help lists all commands" \
	"mount umount warm plan status refresh metrics verify evict pin unpin upgrade report" \
	"$(tr "\n" " " <<<"$commands" | sed "s/ $//")"

# page_options PAGE COMMAND: prints the long options that a page names at the head of a paragraph, in the
# section (.SS) of a command or in the whole page.
page_options() {
	awk -v want="$2" '
		/^\.S[SH]/ {section = $2}
		(want == "" || section == want) && heads {print}
		{heads = /^\.TP/}
	' "$1" | sed 's/\\-/-/g' | grep -o -- '--[a-z_][a-z_-]*' | sort -u
}
help_options() {
	penstock "$1" --help | grep -o -- '^ *\(-[a-zA-Z], \)\?--[a-z_-]*' | grep -o -- '--.*' | sort -u
}

# The page also has options for programs, which --help leaves out.
equal "mount: the page has the options of --help" "$( (help_options mount && printf '%s\n' --owner --serve) | sort)" \
	"$(page_options "$man/penstock-mount.1" "")"
check_not "--help leaves out what is for programs and tests" grep -qE -- '--(owner|serve|cold-reads|header-file)' \
	<(penstock mount --help)
for command in umount plan status refresh metrics verify evict pin unpin upgrade report; do
	equal "$command: the page has the options of --help" \
		"$(help_options "$command" | grep -v -- --help || true)" \
		"$(page_options "$man/penstock.1" "$command")"
done
# The page lists the options that warm shares with mount in a sentence.
warm_page=$(sed -n '/^\.SS warm/,/^\.SS plan/p' "$man/penstock.1" | sed 's/\\-/-/g' | grep -o -- '--[a-z_][a-z_-]*' |
	sort -u)
equal "warm: the page has the options of --help" "$(help_options warm | grep -v -- --help)" "$warm_page"

for command in $commands; do
	rc=0
	penstock "$command" --help >"$T/help" 2>"$T/err" || rc=$?
	equal "$command --help succeeds, on stdout alone" "0 0" "$rc $(wc -c <"$T/err")"
	check "$command --help is at most 110 columns wide" awk 'length > 110 {exit 1}' "$T/help"
	equal "$command -h is the same" "$(cat "$T/help")" "$(penstock "$command" -h)"
done
equal "penstock help prints the same as --help" "$(penstock --help)" "$(penstock help)"
equal "penstock help COMMAND prints the same as COMMAND --help" \
	"$(penstock warm --help)" "$(penstock help warm)"
check "--version prints name and version" \
	bash -c 'penstock --version | grep -Eq "^penstock [0-9]+\.[0-9]+\.[0-9]+$"'

mkdir "$T/bin"
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "external $0 $*"; exit 7\n' >"$T/bin/penstock-hello"
chmod +x "$T/bin/penstock-hello"
rc=0
out=$(PATH=$T/bin:$PATH penstock hello a --b 2>&1) || rc=$?
equal "penstock NAME runs penstock-NAME from the PATH" "7 external $T/bin/penstock-hello a --b" "$rc $out"
