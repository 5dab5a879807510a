/* What a response's header says, and whether it may be believed. Pure: no network, no curl handle.
 *
 * Ownership: plain memory of the caller. Threads: one a response. Blocks: never. */
#ifndef PS_HTTP_RESPONSE_H
#define PS_HTTP_RESPONSE_H

#include "base/error.h"
#include "base/remote.h"

#define PS_RETRY_AFTER_MAX_MS (3600u * 1000) /* a server asking for more gets this */

struct ps_http_response {
	int status;              /* 0: no status line yet */
	uint64_t content_length; /* PS_SIZE_UNKNOWN if not told */
	bool has_range;          /* a well-formed Content-Range; range_nbytes 0: "bytes * / total" */
	uint64_t range_first, range_nbytes, range_total; /* total PS_SIZE_UNKNOWN: "*" */
	bool bad_range;                                  /* a Content-Range that does not parse */
	bool encoded;                                    /* Content-Encoding other than identity */
	bool multipart;                                  /* Content-Type: multipart/byteranges */
	bool html;                                       /* Content-Type: text/html */
	bool is_json;                                    /* Content-Type: application/json */
	int64_t mtime_s;                                 /* -1: not told */
	int64_t date_s;                                  /* -1: not told */
	int64_t retry_at_s;                              /* Retry-After as a date, -1: not told */
	int64_t retry_after_s;                           /* Retry-After as seconds, -1: not told */
	char etag[PS_ETAG_LEN];

	/* What a model and dataset hub says beyond that: of the file that a redirect leads to (X-Linked-Size,
	 * X-Linked-Etag), why it refuses (X-Error-Code), and how many requests of this class are
	 * left until when (RateLimit: "api";r=41;t=55). Absent: PS_SIZE_UNKNOWN, "", -1. */
	uint64_t linked_size;
	char linked_etag[PS_ETAG_LEN];
	char error_code[32];
	char limit_class[16];
	int64_t limit_left, limit_reset_s;

	/* What an S3 store says. */
	char checksum[PS_CHECKSUM_LEN]; /* x-amz-checksum-*, of the whole object; "": not told */
	bool checksum_of_parts;         /* it is none, but one of the parts' checksums */
	bool checksum_is_google; /* of the stored object as a whole, also in answer to a range */
	char bucket_region[64];         /* x-amz-bucket-region; "": not told */
};

/* One line of header, with or without its line end. A status line starts everything anew. */
void ps_http_response_line(struct ps_http_response *r, const char *line, size_t n);

/* The size of the whole object, from Content-Range or Content-Length. */
uint64_t ps_http_response_size(const struct ps_http_response *r);

/* Size and version, for struct ps_get.seen and ps_head.seen. */
void ps_http_response_remote(const struct ps_http_response *r, struct ps_remote *ret);

/* For a status that is no success: the errno of origin.h, retryable, Retry-After, a text. 0 for 200 and 206.
 * expect may be NULL (no range was asked). */
int ps_http_response_status(
        const struct ps_http_response *r, const struct ps_remote *expect, struct ps_error *err);

/* A server may answer with the beginning of a range (RFC 9110, 15.3.7), and some CDNs do: the rest is requested
 * again. One that gives less than this where more was requested would cost too many requests. */
#define PS_HTTP_SHORT_NBYTES ((size_t)64 * 1024)

/* May body bytes of this response be taken for [offset, offset + nbytes) of the version `expect`, or, if range_nbytes
 * is less, for its beginning? 0, or -errno with the story. */
int ps_http_response_check_range(const struct ps_http_response *r, const struct ps_remote *expect,
        uint64_t offset, uint64_t nbytes, struct ps_error *err);

/* A validator for If-Match: quoted, not weak. */
bool ps_etag_is_strong(const char *etag);

#endif
