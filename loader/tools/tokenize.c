/* tokenize: text files into token files. The work is Python's (penstock/tokenize.py), as tokenizers are. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tools.h"

struct tokenize_options {
	const char *tokenizer, *bos, *eos, *column;
	uint32_t processes;
	bool json;
};

#define AT(member) offsetof(struct tokenize_options, member)

static const struct ps_flag flags[] = {
        {"tokenizer", PS_FLAG_TEXT, AT(tokenizer), "FILE", "the tokenizer.json of a tokenizer; needed"},
        {"bos", PS_FLAG_TEXT, AT(bos), "TOKEN", "the token before each document, such as '<s>' [none]"},
        {"eos", PS_FLAG_TEXT, AT(eos), "TOKEN", "the token after each document, such as '</s>' [none]"},
        {"column", PS_FLAG_TEXT, AT(column), "NAME",
                "the key of the text in .jsonl, and its column in .parquet [text]"},
        {"processes", PS_FLAG_U32, AT(processes), "N",
                "files that are tokenized at the same time [one per processor]", 1, 1024},
        {"json", PS_FLAG_SET, AT(json), .text = "print the result as a JSON object"},
};

/* Replaces this process by Python. Returns only on failure, with an exit code. */
static int python_exec(const struct tokenize_options *o, int n, char **words)
{
	static const char code[] =
	        "import sys\n"
	        "try:\n"
	        "    from penstock.tokenize import main\n"
	        "except ImportError as e:\n"
	        "    sys.exit('penstock-loader tokenize: it needs the Python package penstock, which %s does "
	        "not '\n"
	        "             'have (%s): install its wheel there, or name another Python by "
	        "PENSTOCK_PYTHON'\n"
	        "             % (sys.executable, e))\n"
	        "sys.exit(main())\n";
	const char *python = getenv("PENSTOCK_PYTHON") ?: "python3";
	char processes[16];
	const char *fixed[] = {python, "-c", code, "--tokenizer", o->tokenizer, o->bos ? "--bos" : NULL,
	        o->bos, o->eos ? "--eos" : NULL, o->eos, "--column", o->column,
	        o->processes ? "--processes" : NULL, o->processes ? processes : NULL,
	        o->json ? "--json" : NULL, "--"};
	const char **all = ps_need(calloc(PS_ARRAY_LEN(fixed) + (size_t)n + 1, sizeof(*all)));
	size_t at = 0;

	snprintf(processes, sizeof(processes), "%u", o->processes);
	for (size_t i = 0; i < PS_ARRAY_LEN(fixed); i++)
		if (fixed[i])
			all[at++] = fixed[i];
	for (int i = 0; i < n; i++)
		all[at++] = words[i];
	ps_process_give_back();
	execvp(python, (char **)all);
	ps_complain("it needs Python: %s: %s", python, strerror(errno));
	free(all);
	return PS_EXIT_FAILED;
}

int ps_cmd_tokenize(int argc, char **argv)
{
	static const struct ps_flags command = {
	        "Usage: penstock-loader tokenize --tokenizer FILE [OPTION...] SOURCE... DIR\n\n"
	        "Writes text as tokens. SOURCE is a .txt file (one document per line), a .jsonl file (one "
	        "object\n"
	        "per line; both also .gz or .zst), a .parquet file, a folder of such files, or a pattern. "
	        "Each\n"
	        "file x.jsonl becomes DIR/x.bin and DIR/x.idx, in Megatron's format, which penstock.Tokens "
	        "packs\n"
	        "into rows. Complete files are kept: after an interruption, run the same command again.\n",
	        "Examples:\n"
	        "  penstock-loader tokenize --tokenizer tokenizer.json --eos '<|endoftext|>' 'web/*.jsonl' "
	        "tokens\n"
	        "  penstock-loader tokenize --tokenizer tokenizer.json --eos '</s>' --column content "
	        "code.parquet tokens\n",
	        flags, PS_ARRAY_LEN(flags), 0};
	struct tokenize_options o = {.column = "text"};
	int rc = ps_flags_read(&command, &o, argc, argv);

	if (rc >= 0)
		return rc;
	if (!o.tokenizer)
		return ps_fail(PS_EXIT_USAGE, "needs --tokenizer, the tokenizer.json of a tokenizer");
	if (argc - optind < 2)
		return ps_fail(PS_EXIT_USAGE,
		        "needs text files and a folder for the tokens (see penstock-loader tokenize --help)");
	return python_exec(&o, argc - optind, argv + optind);
}
