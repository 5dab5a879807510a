/* penstock-loader ls: the samples of shards. */
#include "config.h"

#include <signal.h>
#include <string.h>

#include "shard/shard.h"
#include "tools/tools.h"

static void json_line(const struct ps_sample *s)
{
	ps_json_shard(s->file->path);
	printf(", \"key\": ");
	ps_json_print(stdout, s->key);
	printf(", \"fields\": {");
	for (uint32_t i = 0; i < s->nfields; i++) {
		printf("%s", i ? ", " : "");
		ps_json_print(stdout, s->fields[i].suffix);
		printf(": {\"offset\": %ju, \"size\": %ju}", (uintmax_t)s->fields[i].offset,
		        (uintmax_t)s->fields[i].size);
	}
	printf("}}\n");
}

static void plain_line(const struct ps_sample *s)
{
	ps_plain_print(stdout, s->key);
	for (uint32_t i = 0; i < s->nfields; i++) {
		putchar(i ? ' ' : '\t');
		ps_plain_print(stdout, s->fields[i].suffix);
		printf(":%juB", (uintmax_t)s->fields[i].size);
	}
	putchar('\n');
}

/* Lists a shard's samples. False: something in the shard is damaged. */
static bool shard_list(const char *path, bool json)
{
	struct ps_shard_options options = {
	        .stream = {.buf_nbytes = 256 << 10, .wake_fd = -1}, .never_hold = true};
	struct ps_error err = {0};
	struct ps_shard *shard = ps_need(ps_shard_new(path, 0, &options, &err));
	struct ps_sample *s;
	bool sound = true;
	int rc;

	while ((rc = ps_shard_next(shard, &s, &err)) == 1) {
		if (s->bad) {
			sound = false;
			if (s->key_len > 0)
				ps_complain("%s: sample \"%s\" at offset %ju: %s", path, s->key,
				        (uintmax_t)s->offset, s->reason);
			else
				ps_complain("%s: %s", path, s->reason);
		} else if (json) {
			json_line(s);
		} else {
			plain_line(s);
		}
		ps_sample_free(s);
	}
	if (rc < 0)
		ps_complain("%s", err.text);
	ps_shard_free(shard);
	return sound && rc == 0;
}

struct ls_options {
	bool json;
};

static const struct ps_flag flags[] = {
        {"json", PS_FLAG_SET, offsetof(struct ls_options, json),
                .text = "print one JSON object per sample: shard, key, fields with offset and size"},
};

int ps_cmd_ls(int argc, char **argv)
{
	static const struct ps_flags command = {"Usage: penstock-loader ls [--json] SHARDS...\n\n"
	                                        "Lists the samples of shards, one per line: the key, and "
	                                        "each field with its size in bytes (cls:1B).\n",
	        "Examples:\n"
	        "  penstock-loader ls 'train-{000..007}.tar' | wc -l\n"
	        "  penstock-loader ls --json train-000.tar | jq -r .key\n",
	        flags, PS_ARRAY_LEN(flags), 0};
	__attribute__((cleanup(ps_shard_list_fini))) struct ps_shard_list shards = {0};
	struct ls_options o = {0};
	bool sound = true;
	int rc = ps_flags_read(&command, &o, argc, argv);

	if (rc >= 0)
		return rc;
	rc = ps_shards_take(argc, argv, &shards);
	if (rc != PS_EXIT_OK)
		return rc;
	signal(SIGPIPE, SIG_DFL); /* `ls | head` ends without a word, as cat does */
	for (size_t i = 0; i < shards.n && !ferror(stdout); i++)
		sound = shard_list(shards.names[i], o.json) && sound;
	return sound ? PS_EXIT_OK : PS_EXIT_FAILED;
}
