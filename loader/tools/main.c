/* penstock-loader: the commands. */
#include "config.h"

#include <string.h>

#include "penstock.h"
#include "base/process.h"
#include "base/suggest.h"
#include "tools/tools.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *text;
} commands[] = {
        {"bench", ps_cmd_bench, "load shards as a training run would, and report speed and bottleneck"},
        {"doctor", ps_cmd_doctor, "find and repair damage in shards, or check this machine"},
        {"index", ps_cmd_index, "record how many samples each shard holds and where they are"},
        {"ls", ps_cmd_ls, "list the samples of shards with their fields and sizes"},
        {"make-dataset", ps_cmd_make_dataset, "draw a small dataset, for the guides and first experiments"},
        {"pack", ps_cmd_pack, "write files, rows of Parquet, or the samples of other shards into shards"},
        {"show", ps_cmd_show, "draw the first batch, with its labels, as a picture"},
        {"tokenize", ps_cmd_tokenize, "write text files as token files, for language models"},
};

/* Commands of earlier versions. */
static const struct {
	const char *name, *instead;
} gone[] = {
        {"cat", "write pack --repack SHARDS... -, with the same options"},
        {"shuffle-quality", "the sources have it, as tests/bench/shuffle_quality"},
        {"split", "write pack --repack SHARDS... OUT, with the same options"},
};

static void help(FILE *out)
{
	fprintf(out, "Usage: penstock-loader COMMAND [OPTION...] SHARDS...\n\n"
	             "Measures, indexes, lists, writes and repairs WebDataset tar shards.\n"
	             "SHARDS are paths, folders, patterns such as 'train-{000..127}.tar' or 'train-*.tar',\n"
	             "or @LIST for a file with one of these per line.\n\n"
	             "Commands:\n");
	for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++)
		fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].text);
	fprintf(out,
	        "\nOptions:\n"
	        "  --help     print this text, or after a command, the options of the command\n"
	        "  --version  print the version\n\n"
	        "Exit status: 0 success, 1 failure, 2 wrong usage, 3 bench found that data "
	        "differs from a profile.\n\n"
	        "Examples:\n"
	        "  penstock-loader bench 'data/train-{000..127}.tar'\n"
	        "  penstock-loader ls --json data/train-000.tar\n"
	        "  penstock-loader pack --classes --shuffle 1 --index imagenet/train/ 'train-%%06d.tar'\n");
}

static int run(int argc, char **argv)
{
	char option[] = "--help";

	if (strcmp(argv[0], "help") == 0 && argc > 1 && argv[1][0] != '-')
		return run(2, (char *[]){argv[1], option, NULL});
	if (strcmp(argv[0], "help") == 0) {
		help(stdout);
		return PS_EXIT_OK;
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++) {
		if (strcmp(argv[0], commands[i].name) == 0) {
			static char name[64];

			snprintf(name, sizeof(name), "penstock-loader %s", commands[i].name);
			ps_command_begin(name);
			return commands[i].run(argc, argv);
		}
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(gone); i++) {
		if (strcmp(argv[0], gone[i].name) == 0)
			return ps_fail(PS_EXIT_USAGE, "the command '%s' no longer exists: %s", gone[i].name,
			        gone[i].instead);
	}
	struct ps_guess guess = {.word = argv[0], .len = strlen(argv[0])};
	for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++)
		ps_guess_offer(&guess, commands[i].name);
	if (guess.best)
		return ps_fail(
		        PS_EXIT_USAGE, "unknown command '%.64s'; did you mean '%s'?", argv[0], guess.best);
	return ps_fail(PS_EXIT_USAGE, "unknown command '%.64s' (penstock-loader --help lists them)", argv[0]);
}

int main(int argc, char **argv)
{
	ps_process_begin();
	if (ps_process_small_as())
		ps_complain("warning: the address space is limited to %zu MiB (ulimit -v); below %zu MiB "
		            "threads and memory may run out",
		        ps_process_small_as() >> 20, PS_PROCESS_AS_NBYTES >> 20);
	if (argc < 2)
		return ps_fail(PS_EXIT_USAGE, "no command (see penstock-loader --help)");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		help(stdout);
		return PS_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("penstock-loader %s\n", penstock_version());
		return PS_EXIT_OK;
	}
	int rc = run(argc - 1, argv + 1);
	if (fflush(stdout) != 0 || ferror(stdout))
		return ps_fail(PS_EXIT_FAILED, "cannot write to stdout");
	return rc;
}
