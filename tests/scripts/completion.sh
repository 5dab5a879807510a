#!/usr/bin/env bash
# bash completion offers what the programs take: every command, every option, every value of those that take
# one of a few; and the programs take what it offers. What they take is seen by asking them to do it, not by
# their --help alone.
. "$(dirname "$0")/../lib.sh"

# shellcheck source=scripts/bash-completion
. "$top_srcdir/scripts/bash-completion"
# Other tests mount and unmount meanwhile.
eval "all$(declare -f _penstock_mounts)"
_penstock_mounts() { all_penstock_mounts | grep -F "$T/" || true; }
export PENSTOCK_CONFIG=$T/penstock.conf
printf '[defaults]\ncache-size = 1G\n[imagenet]\n [ laion-400m ]\n' >"$PENSTOCK_CONFIG"

# Asked once, as the programs' answers do not change.
eval "ask$(declare -f _penstock_options)"
declare -A told_options=()
_penstock_options() {
	if [[ ${told_options["$*"]-} ]]; then
		printf '%s\n' "${told_options["$*"]}"
	else
		ask_penstock_options "$@"
	fi
}

words() { tr -s ' ' '\n' | sort | paste -s -d ' '; } # sorted, in one line

# offered WORD...: what is offered for the last of a line's words.
offered() {
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_penstock
	if ((${#COMPREPLY[@]} < 2)); then
		printf '%s\n' "${COMPREPLY[*]}"
	else
		printf '%s\n' "${COMPREPLY[@]}" | sort | paste -s -d ' '
	fi
}

# What a program says to its arguments and an option that none has, which keeps it from doing anything.
answer() {
	local said
	said=$(timeout 30 "$@" --no-such-option-at-all 2>&1 </dev/null || true)
	printf '%s\n' "${said%%$'\n'*}"
}
takes() { # WHAT COMMAND...
	local said
	said=$(answer "${@:2}")
	check "$1" [ "${said/no-such-option-at-all/}" != "$said" ]
}

check_values() { # ARGUMENT PROGRAM COMMAND OPTION
	local argument=$1 values told
	shift
	values=$(offered "$@" "")
	[[ $argument != *FILE* && $argument != DIR ]] || values=$(cd "$T/nothing" && offered "$@" "")
	told=$(answer "$@" nix)
	if [[ $told =~ "'nix' is none of "(.*) || $told =~ ": must be "([^ ]*\|[^ ]*)$ ]]; then
		told=${BASH_REMATCH[1]//[,|]/ }
		equal "$*: what it takes is offered" "$(words <<<"$told")" "$values"
	fi
	for value in $values; do
		takes "$*: takes $value" "$@" "$value"
	done
}

check_options() { # PROGRAM COMMAND
	local letter name argument said
	told_options["$*"]=$(_penstock_options "$@")
	equal "$*: the options of --help are offered" \
		"$("$@" --help | grep -oE '^ *(-[a-zA-Z], )?--[a-z_-]+' | grep -o -- '--.*' | words)" \
		"$(offered "$@" --)"
	while read -r letter name argument; do
		[[ $name == --* && $name != --help ]] || continue
		if [[ $argument == - ]]; then
			takes "$* $name: there is such an option, without a value" "$@" "$name"
		else
			said=$(timeout 30 "$@" "$name" 2>&1 </dev/null || true)
			check "$* $name: there is such an option, with a value" [ "${said/needs/}" != "$said" ]
			check_values "$argument" "$@" "$name"
		fi
		[[ $letter == - ]] ||
			check "$* $letter: is the same" test "$(offered "$@" "$name" "")" = "$(offered "$@" "$letter" "")"
	done <<<"${told_options["$*"]}"
}

mkdir "$T/nothing" "$T/some" "$T/some/folder"
touch "$T/some/shard.tar"
programs=
for program in penstock penstock-loader; do
	[[ -x $top_builddir/$program ]] || continue
	programs+=" $program"
	commands=$(_penstock_commands "$program" | paste -s -d ' ')
	check "$program has commands" test -n "$commands"
	equal "$program: its commands and options are offered" "$(words <<<"$commands --help --version")" \
		"$(offered $program "")"
	for command in $commands; do
		check_options $program "$command"
	done
done
[[ $programs ]] || skip_all "no program is built"

cd "$T/some"
if [[ $programs == *penstock-loader* ]]; then
	equal "shards are files" "folder shard.tar" "$(offered penstock-loader ls "")"
	equal "a value behind =" "f16 f32" "$(offered penstock-loader bench --dtype = f)"
	equal "right behind =" "nchw nhwc" "$(offered penstock-loader bench --layout =)"
	equal "a number is not guessed" "" "$(offered penstock-loader bench --batch "")"
	equal "folders alone where one is asked for" "folder" "$(offered penstock-loader index --dir "")"
	equal "an option behind a value" "--shuffle-window" "$(offered penstock-loader bench --order window --shu)"
fi
[[ $programs == *"penstock "* || $programs == *penstock ]] || exit 0
equal "mounts of the configuration" "imagenet laion-400m" "$(offered penstock mount "")"
equal "by their beginning" "laion-400m" "$(offered penstock mount lai)"
equal "then a place for it" "folder shard.tar" "$(offered penstock mount imagenet "")"
equal "a list of options" "ro,cache-dir ro,cache-size" "$(offered penstock mount x /y -o ro,cache-)"
if [[ -c /dev/fuse ]] && ((EUID == 0)); then
	mkdir "$T/a mount"
	mount_penstock "$T/some/" --cache-dir "$T/cache"
	check "what is mounted, to be unmounted" grep -qw -- "$MNT" <(offered penstock umount "$T/")
fi
# A mount's name is a word, whatever it looks like.
hostile="/mnt/\$(touch $T/run)"
_penstock_mounts() { echo "$hostile"; }
equal "a name is not run" "$hostile" "$(offered penstock warm /mnt)"
check_not "it has not been" test -e "$T/run"
