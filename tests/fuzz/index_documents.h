/* Any bytes as an index beside a token file: what is read of it covers what was asked for, and is packed whole. */
#ifndef PS_TESTS_FUZZ_INDEX_DOCUMENTS_H
#define PS_TESTS_FUZZ_INDEX_DOCUMENTS_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/io.h"
#include "shard/tokens/documents.h"
#include "shard/tokens/fit.h"

static char documents_folder[] = "/tmp/documents_fuzz.XXXXXX";

static void documents_remove(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/t.idx", documents_folder);
	(void)unlink(path);
	snprintf(path, sizeof(path), "%s/t.ds.index", documents_folder);
	(void)unlink(path);
	(void)rmdir(documents_folder);
}

static void documents_write(const char *index, const uint8_t *data, size_t size)
{
	static bool made;
	char path[64];
	int fd;

	if (!made && (!mkdtemp(documents_folder) || atexit(documents_remove) != 0))
		abort();
	made = true;
	snprintf(path, sizeof(path), "%s/%s", documents_folder, index);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ps_write_all(fd, data, size) < 0 || close(fd) < 0)
		abort();
}

static void documents_pack(const struct ps_document_list *list)
{
	struct ps_fit_options o = {.pack = PS_PACK_FIT, .length = 16};
	uint64_t tokens = 0, packed = 0;
	struct ps_fit fit;

	for (uint32_t i = 0; i < list->n; i++)
		tokens += list->lens[i];
	if (tokens != list->to - list->from)
		abort();
	o.rows = (uint32_t)(tokens / 12 + 1);
	if (tokens > 1 << 16 || ps_fit_pack(&o, list->lens, list->n, &fit, NULL) < 0)
		return;
	for (uint32_t i = 0; i < fit.begins[fit.rows]; i++)
		packed += fit.parts[i].len;
	if (packed != tokens)
		abort();
	ps_fit_fini(&fit);
}

/* Reads pieces of `piece` tokens from the beginning, of those that the index says there are, by its own end. */
static void documents_read(const struct ps_documents *d, uint64_t ntokens, size_t item)
{
	for (uint64_t from = 0, piece = 1 + ntokens / 5; from < ntokens; from += piece)
		for (int whole = 0; whole < 2; whole++) {
			uint64_t to = PS_MIN(from + piece, ntokens);
			struct ps_document_list list;

			if (ps_documents_read(d, from, to, item, whole, &list, NULL) < 0)
				continue;
			if (!whole && (list.from != from || list.to != to))
				abort();
			documents_pack(&list);
			ps_document_list_fini(&list);
		}
}

/* `ntokens`: what the last number of the index says. */
static void documents_fuzz(
        const char *tokens, const char *index, const uint8_t *data, size_t size, uint64_t ntokens)
{
	struct ps_documents *d;
	enum ps_dtype dtype;
	size_t item = 2;
	char path[64];

	if (ntokens > UINT64_C(1) << 60) /* more than a file can have */
		return;
	documents_write(index, data, size);
	snprintf(path, sizeof(path), "%s/%s", documents_folder, tokens);
	if (ps_documents_open(path, &d, NULL) < 0)
		return;
	if (ps_documents_type(d, &dtype))
		item = ps_dtype_nbytes(dtype);
	if (ps_documents_fit(d, ntokens, item, NULL) == 0)
		documents_read(d, ntokens, item);
	ps_documents_close(d);
}

#endif
