/* Indexes of documents beside token files: what they say, searches in large ones, and damage. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/error.h"
#include "shard/tokens/documents.h"

static char folder[] = "/tmp/documents_test.XXXXXX";

static void file_write(const char *name, const void *p, size_t n)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* An .idx: sequences of `lens` tokens, and documents of `per` sequences each. */
struct idx {
	struct ps_buf bytes;
	uint64_t n, d;
	size_t lengths, pointers, documents; /* offsets */
};

static struct idx idx_make(const int32_t *lens, uint64_t n, uint64_t per, int code, unsigned item)
{
	const uint64_t version = 1;
	uint64_t d = (n + per - 1) / per + 1;
	struct idx x = {.n = n, .d = d - 1, .lengths = 34, .pointers = 34 + 4 * n, .documents = 34 + 12 * n};
	uint8_t c = (uint8_t)code;
	int rc = ps_buf_add(&x.bytes, "MMIDIDX\0\0", 9);
	int64_t pointer = 0;

	rc |= ps_buf_add(&x.bytes, &version, 8) | ps_buf_add(&x.bytes, &c, 1) | ps_buf_add(&x.bytes, &n, 8) |
	      ps_buf_add(&x.bytes, &d, 8) | ps_buf_add(&x.bytes, lens, n * 4);
	for (uint64_t i = 0; i < n; i++) {
		rc |= ps_buf_add(&x.bytes, &pointer, 8);
		pointer += (int64_t)lens[i] * item;
	}
	for (uint64_t i = 0; i < d; i++) {
		int64_t first = (int64_t)(i * per < n ? i * per : n);

		rc |= ps_buf_add(&x.bytes, &first, 8);
	}
	assert_int_equal(rc, 0);
	return x;
}

static struct ps_documents *open_ok(const char *name)
{
	struct ps_documents *d = NULL;
	struct ps_error err = {0};
	int rc = ps_documents_open(path_of(name), &d, &err);

	if (rc < 0)
		print_message("%s\n", err.text);
	assert_int_equal(rc, 0);
	assert_non_null(d);
	return d;
}

static struct ps_document_list read_ok(
        const struct ps_documents *d, uint64_t from, uint64_t to, size_t item, bool whole)
{
	struct ps_document_list list;
	struct ps_error err = {0};
	int rc = ps_documents_read(d, from, to, item, whole, &list, &err);

	if (rc < 0)
		print_message("%s\n", err.text);
	assert_int_equal(rc, 0);
	return list;
}

/* Compares a list with the ends of all documents. */
static void list_check(struct ps_document_list *list, const uint64_t *ends, uint64_t n, uint64_t from,
        uint64_t to, bool whole)
{
	uint64_t at = list->from;

	if (!whole) {
		assert_true(list->from == from && list->to == to);
	}
	for (uint64_t k = 0, i = 0; k < n; k++) {
		uint64_t begin = k > 0 ? ends[k - 1] : 0, end = ends[k];

		if (whole ? begin < from || begin >= to : begin >= to || end <= from) {
			/* an empty document at an end of the tokens may be there or not */
			if (begin == end && i < list->n && list->first + i == k && list->lens[i] == 0)
				i++;
			continue;
		}
		if (!whole) {
			if (i == 0)
				assert_int_equal(list->continued, begin < from);
			assert_true(end <= to || list->continues);
			begin = begin > from ? begin : from;
			end = end < to ? end : to;
		}
		assert_true(i < list->n);
		assert_true(list->first + i == k);
		assert_true(list->lens[i] == end - begin);
		assert_true(at == begin);
		at = end;
		i++;
		if (k == n - 1 || ends[k] >= to)
			assert_true(whole || i == list->n);
	}
	ps_document_list_fini(list);
}

static uint64_t rng_state = 1;

static uint32_t draw(uint32_t below)
{
	rng_state = rng_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((rng_state >> 33) % below);
}

/* Files with lengths of which the middle is far from where a straight line would be. */
static int32_t length_draw(int kind, uint64_t i, uint64_t n)
{
	if (kind == 0)
		return (int32_t)draw(20);
	if (kind == 1)
		return i < n / 2 ? 1 : (int32_t)draw(900);
	return i == n - 1 ? 1 << 28 : (int32_t)(i % 7 == 0);
}

static void documents_are_found_anywhere_in_an_idx(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++)
		for (uint64_t n = 1; n < 100000; n = n * 9 + 1)
			for (uint64_t per = 1; per < 8; per += 3) {
				int32_t *lens = malloc(n * sizeof(*lens));
				uint64_t *ends = malloc(n * sizeof(*ends)), at = 0, d;
				struct ps_documents *documents;
				struct ps_error err = {0};
				enum ps_dtype dtype;
				struct idx x;

				for (uint64_t i = 0; i < n; i++) {
					lens[i] = length_draw(kind, i, n);
					at += (uint64_t)lens[i];
					ends[i / per] = at;
				}
				x = idx_make(lens, n, per, 8, 2);
				d = x.d;
				file_write("a.idx", x.bytes.p, x.bytes.n);
				documents = open_ok("a.bin");
				assert_true(ps_documents_type(documents, &dtype) && dtype == PS_U16);
				assert_false(ps_documents_has_loss(documents));
				assert_int_equal(ps_documents_fit(documents, at, 2, &err), 0);
				assert_int_equal(ps_documents_fit(documents, at + 1, 2, &err), -EBADMSG);
				for (int i = 0; i < 60 && at > 0; i++) {
					uint64_t from = draw((uint32_t)at), to;
					struct ps_document_list list;

					from = i == 0 ? 0 : from;
					to = from + 1 + draw((uint32_t)(at - from));
					to = i == 1 || to > at ? at : to;
					list = read_ok(documents, from, to, 2, false);
					list_check(&list, ends, d, from, to, false);
					list = read_ok(documents, from, to, 2, true);
					list_check(&list, ends, d, from, to, true);
				}
				ps_documents_close(documents);
				ps_buf_fini(&x.bytes);
				free(lens);
				free(ends);
			}
}

static void documents_are_found_anywhere_in_a_ds_index(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++)
		for (uint64_t n = 1; n < 100000; n = n * 9 + 1) {
			uint64_t *ends = malloc(n * sizeof(*ends)), at = 0;
			struct ps_documents *d;
			struct ps_error err = {0};
			enum ps_dtype dtype;

			for (uint64_t i = 0; i < n; i++)
				ends[i] = at += (uint64_t)length_draw(kind, i, n);
			file_write("a.ds.index", ends, n * 8);
			d = open_ok("a.ds");
			assert_false(ps_documents_type(d, &dtype));
			assert_int_equal(ps_documents_fit(d, at, 2, &err), 0);
			assert_int_equal(ps_documents_fit(d, at * 2 + 1, 2, &err), -EBADMSG);
			for (int i = 0; i < 60 && at > 0; i++) {
				uint64_t from = i == 0 ? 0 : draw((uint32_t)at), to;
				struct ps_document_list list;

				to = from + 1 + draw((uint32_t)(at - from));
				to = i == 1 || to > at ? at : to;
				list = read_ok(d, from, to, 2, false);
				list_check(&list, ends, n, from, to, false);
				list = read_ok(d, from, to, 2, true);
				list_check(&list, ends, n, from, to, true);
			}
			ps_documents_close(d);
			free(ends);
		}
}

static void losses_are_read_from_the_file_beside(void **state)
{
	const uint64_t ends[] = {3, 5};
	const uint8_t loss[] = {1, 0, 1, 1, 0};
	struct ps_error err = {0};
	struct ps_documents *d;
	uint8_t got[3];

	(void)state;
	file_write("l.ds.index", ends, sizeof(ends));
	file_write("l.ds.loss", loss, sizeof(loss));
	d = open_ok("l.ds");
	assert_true(ps_documents_has_loss(d));
	assert_int_equal(ps_documents_fit(d, 5, 2, &err), 0);
	assert_int_equal(ps_documents_loss_read(d, 1, 3, got, &err), 0);
	assert_memory_equal(got, loss + 1, 3);
	ps_documents_close(d);
	file_write("l.ds.loss", loss, 4);
	d = open_ok("l.ds");
	assert_int_equal(ps_documents_fit(d, 5, 2, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "l.ds.loss: it has 4 bytes"));
	ps_documents_close(d);
}

static void files_without_an_index_have_none(void **state)
{
	const char *const names[] = {"none.bin", "none.ds", "a.npy", ".bin"};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
		struct ps_documents *d = (void *)1;
		struct ps_error err = {0};

		assert_int_equal(ps_documents_open(path_of(names[i]), &d, &err), 0);
		assert_null(d);
	}
}

/* A damaged number: -EBADMSG, which names the file and the number, at open or where its piece is read. */
struct damage {
	const char *what;
	int table; /* 0: from the beginning; 1: lengths; 2: pointers; 3: documents */
	uint64_t index;
	unsigned size;
	int64_t value;
	int errnum;
	const char *says;
};

static void damage_is_an_error_that_names_the_number(void **state)
{
	static const struct damage all[] = {
	        {"magic", 0, 0, 1, 'X', EBADMSG, "MMIDIDX"},
	        {"version", 0, 9, 8, 2, EBADMSG, "version is 2"},
	        {"code", 0, 17, 1, 9, EBADMSG, "type is 9"},
	        {"code 0", 0, 17, 1, 0, EBADMSG, "type is 0"},
	        {"too many sequences", 0, 18, 8, 101, EBADMSG, "101 sequences"},
	        {"sequences that overflow", 0, 18, 8, INT64_MIN + 100, EBADMSG, "do not fit"},
	        {"too few documents", 0, 26, 8, 50, EBADMSG, "49 documents"},
	        {"no list of documents", 0, 26, 8, 0, EBADMSG, "is empty"},
	        {"first document", 3, 0, 8, 1, EBADMSG, "from 1 to 100"},
	        {"last document", 3, 50, 8, 99, EBADMSG, "from 0 to 99"},
	        {"first pointer", 2, 0, 8, 2, EBADMSG, "sequence 0 is 2"},
	        {"last length", 1, 99, 4, -1, EBADMSG, "sequence 99 is -1"},
	        {"last pointer", 2, 99, 8, -8, EBADMSG, "sequence 99 is -8"},
	        {"another last length", 1, 99, 4, 11, EBADMSG, "ends at byte 2002"},
	        {"a negative length", 1, 40, 4, -3, EBADMSG, "sequence 40 is -3"},
	        {"a shorter length", 1, 40, 4, 9, EBADMSG, "sequence 41 is 820"},
	        {"a longer length", 1, 40, 4, 1 << 30, EBADMSG, "sequence 40"},
	        {"a pointer", 2, 41, 8, 822, EBADMSG, "sequence 41 is 822"},
	        {"an odd pointer", 2, 41, 8, 821, EBADMSG, "pointer 821"},
	        {"a negative pointer", 2, 41, 8, -20, EBADMSG, "pointer -20"},
	        {"a document too far", 3, 21, 8, 101, EBADMSG, "to 101"},
	        {"documents that descend", 3, 21, 8, 39, EBADMSG, "39 to 44"},
	        {"a negative document", 3, 21, 8, -1, EBADMSG, "to -1"},
	        {"an index of DALI", 0, 0, 8, 0x203231302e312e76 - 0x0000000200000000, EINVAL, "DALI"},
	};
	int32_t lens[100];

	(void)state;
	for (size_t i = 0; i < 100; i++)
		lens[i] = 10;
	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
		const struct damage *a = &all[i];
		struct idx x = idx_make(lens, 100, 2, 8, 2);
		size_t places[] = {0, x.lengths, x.pointers, x.documents};
		struct ps_document_list list = {0};
		struct ps_documents *d = NULL;
		struct ps_error err = {0};
		int rc;

		memcpy(x.bytes.p + places[a->table] + a->index * (a->table ? a->size : 1), &a->value,
		        a->size);
		if (a->errnum == EINVAL)
			memcpy(x.bytes.p, "v1.2 100", 8);
		file_write("d.idx", x.bytes.p, x.bytes.n);
		rc = ps_documents_open(path_of("d.bin"), &d, &err);
		if (rc == 0)
			rc = ps_documents_fit(d, 1000, 2, &err);
		for (uint64_t from = 0; rc == 0 && from < 1000; from += 100) {
			rc = ps_documents_read(d, from, from + 100, 2, false, &list, &err);
			ps_document_list_fini(&list);
		}
		if (rc != -a->errnum || !strstr(err.text, a->says) || !strstr(err.text, "d.idx"))
			fail_msg("%s: %d: %s", a->what, rc, err.text);
		ps_documents_close(d);
		ps_buf_fini(&x.bytes);
	}
}

/* The documents of a piece begin where what is before them ends. */
static void a_gap_before_whole_documents_is_an_error(void **state)
{
	struct ps_document_list list;
	struct ps_error err = {0};
	struct ps_documents *d;
	int32_t lens[100];
	struct idx x;

	(void)state;
	for (size_t i = 0; i < 100; i++)
		lens[i] = 10;
	x = idx_make(lens, 100, 2, 8, 2);
	x.bytes.p[x.lengths + 49 * 4] = 9;
	file_write("g.idx", x.bytes.p, x.bytes.n);
	d = open_ok("g.bin");
	list = read_ok(d, 0, 400, 2, true);
	ps_document_list_fini(&list);
	assert_int_equal(ps_documents_read(d, 500, 600, 2, true, &list, &err), -EBADMSG);
	assert_non_null(strstr(
	        err.text, "the pointer of sequence 50 is 1000, but the sequence before it ends at byte 998"));
	ps_documents_close(d);
	ps_buf_fini(&x.bytes);
}

/* A file of zeros takes no room on a disk, but each of them is an empty document. */
static void more_empty_documents_than_memory_is_for_are_an_error(void **state)
{
	const off_t nbytes = (off_t)((1 << 24) + 12) * 8;
	const uint64_t end = 10;
	struct ps_document_list list;
	struct ps_error err = {0};
	struct ps_documents *d;

	(void)state;
	file_write("z.ds.index", "", 0);
	assert_int_equal(truncate(path_of("z.ds.index"), nbytes - 8), 0);
	{
		FILE *f = fopen(path_of("z.ds.index"), "a");

		assert_non_null(f);
		assert_int_equal(fwrite(&end, 1, 8, f), 8);
		assert_int_equal(fclose(f), 0);
	}
	d = open_ok("z.ds");
	assert_int_equal(ps_documents_fit(d, 10, 2, &err), 0);
	assert_int_equal(ps_documents_read(d, 0, 10, 2, true, &list, &err), -EOVERFLOW);
	assert_non_null(strstr(err.text, "nearly all of them are empty: make the index again"));
	ps_documents_close(d);
}

static void damaged_ends_are_an_error_that_names_the_number(void **state)
{
	uint64_t ends[] = {10, 20, 15, 40}, larger[] = {10, 50, 30, 40};
	struct ps_document_list list;
	struct ps_error err = {0};
	struct ps_documents *d;

	(void)state;
	file_write("e.ds.index", ends, sizeof(ends));
	d = open_ok("e.ds");
	assert_int_equal(ps_documents_read(d, 0, 40, 2, false, &list, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "e.ds.index: end 2 is 15"));
	file_write("e.ds.index", larger, sizeof(larger));
	assert_int_equal(ps_documents_read(d, 0, 40, 2, false, &list, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "e.ds.index: end 1 is 50"));
	file_write("e.ds.index", ends, 24);
	assert_int_equal(ps_documents_read(d, 0, 40, 2, false, &list, &err), -ESTALE);
	ps_documents_close(d);
	file_write("e.ds.index", ends, 23);
	assert_int_equal(ps_documents_open(path_of("e.ds"), &d, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "23 bytes"));
}

static void an_index_cut_anywhere_is_an_error(void **state)
{
	const int32_t lens[] = {3, 4, 5};
	struct idx x = idx_make(lens, 3, 1, 4, 4);

	(void)state;
	for (size_t n = 0; n < x.bytes.n; n++) {
		struct ps_documents *d = NULL;
		struct ps_error err = {0};

		file_write("c.idx", x.bytes.p, n);
		assert_int_equal(ps_documents_open(path_of("c.bin"), &d, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "c.idx"));
	}
	assert_int_equal(ps_buf_add(&x.bytes, "\0\0\0", 3), 0);
	file_write("c.idx", x.bytes.p, x.bytes.n);
	{
		struct ps_documents *d = NULL;
		struct ps_error err = {0};

		assert_int_equal(ps_documents_open(path_of("c.bin"), &d, &err), -EINVAL);
		assert_non_null(strstr(err.text, "multimodal"));
	}
	ps_buf_fini(&x.bytes);
}

/* Documents that end with a token, at all sizes of tokens, and around the blocks that are searched at once. */
static void end_tokens_are_found(void **state)
{
	static uint8_t tokens[8 * 700];

	(void)state;
	for (size_t item = 1; item <= 8; item *= 2)
		for (uint64_t round = 0; round < 200; round++) {
			uint64_t n = draw(700), end_token = item == 1 ? 0xfe : 0x1fe, at = 0;
			struct ps_document_list list;
			struct ps_error err = {0};
			uint32_t k = 0;

			for (uint64_t i = 0; i < n; i++) {
				uint64_t v = draw(round % 2 ? 3 : 90) ? 5 : end_token;

				memcpy(tokens + i * item, &v, item); /* little-endian */
			}
			assert_int_equal(
			        ps_documents_scan(tokens, n, item, end_token, round % 3 == 0, &list, &err),
			        0);
			assert_true(list.from == 0 && list.to == n);
			assert_int_equal(list.continued, n > 0 && round % 3 != 0);
			for (uint64_t i = 0; i < n; i++) {
				uint64_t v = 0;

				memcpy(&v, tokens + i * item, item);
				if (v != end_token && i + 1 < n)
					continue;
				assert_true(k < list.n && list.lens[k] == i + 1 - at);
				k++;
				at = i + 1;
				assert_true(i + 1 < n || list.continues == (v != end_token));
			}
			assert_int_equal(k, list.n);
			ps_document_list_fini(&list);
		}
}

static int folder_make(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
	char command[160];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(documents_are_found_anywhere_in_an_idx),
	        cmocka_unit_test(documents_are_found_anywhere_in_a_ds_index),
	        cmocka_unit_test(losses_are_read_from_the_file_beside),
	        cmocka_unit_test(files_without_an_index_have_none),
	        cmocka_unit_test(damage_is_an_error_that_names_the_number),
	        cmocka_unit_test(a_gap_before_whole_documents_is_an_error),
	        cmocka_unit_test(more_empty_documents_than_memory_is_for_are_an_error),
	        cmocka_unit_test(damaged_ends_are_an_error_that_names_the_number),
	        cmocka_unit_test(an_index_cut_anywhere_is_an_error),
	        cmocka_unit_test(end_tokens_are_found),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
