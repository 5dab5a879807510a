/* Origins: where the bytes of a dataset come from. Each kind (http, file, hf) is a table of functions.
 *
 * An origin lists the objects of a source, finds the size and version of an object, and reads ranges of it.
 * It makes single attempts: retries, single flight and deadlines belong to fetch/. Only the origin decides
 * which errors are retryable. A fault, a delay or a trace for a test is an origin that wraps an origin.
 *
 * Files, from the top: origin.c (opening; access and route of an origin), one or more files for each kind
 * (file.c; http.c; s3.c, s3_request.c, s3_endpoint.c, also for gs; az.c; bucket_list.c, for s3, gs and
 * az; hub.c, hub_get.c, hub_source.c), http_get.c (ranges and HEADs by HTTP), source.c. origin_private.h,
 * bucket_private.h and hub_private.h are private to this folder.
 *
 * Ownership: an origin belongs to its opener. close ends requests in flight with ECANCELED, and returns
 * once every done has returned; it must not be called from done or progress. Threads: head, get and cancel
 * may be called from any thread, and never block on network or disk. The origin's own threads call progress
 * and done, never from inside head, get or cancel, and with none of its locks held; these callbacks must
 * not block for long. Open starts a thread, so a process that forks must fork before it. Errors: -errno and
 * a struct ps_error. Each errno has one meaning:
 *
 *   ENOENT         no such object (404, 410)
 *   EACCES         refused (401, 403)
 *   ESTALE         another version than expected
 *   ETIMEDOUT      no answer, or a stall
 *   EPROTO         an invalid response: wrong range, wrong length, 200 for 206, a body longer than its length
 *   EHOSTUNREACH   the name is not found, or there is no connection
 *   EAGAIN         the server asks to wait (429, 503)
 *   ECANCELED      by cancel
 *   EIO            any other error of the server or the disk */
#ifndef PS_ORIGIN_ORIGIN_H
#define PS_ORIGIN_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/remote.h"
#include "http/http.h"
#include "listing/listing.h"

struct ps_origin;

/* One ranged read. The caller fills in the first part, and keeps the struct alive until done. */
struct ps_origin_get {
	const char *url;
	struct ps_remote expect; /* the version that the bytes must belong to; its size is known */
	uint64_t offset;
	size_t nbytes;     /* > 0, offset + nbytes <= expect.size */
	struct iovec *iov; /* destination; its lengths sum up to nbytes; not changed by the origin */
	int niov;
	/* use a new connection: the last attempt got no answer, and other open connections may be dead,
	 * too */
	bool fresh;
	bool direct; /* ask the origin itself, no tier */
	/* The caller's right to read the object is not proved yet: the origin itself answers the first
	 * byte. */
	bool asks;
	/* Bytes [0, nbytes_so_far) of the range have arrived. Called as they arrive, in order, from one
	 * thread, only after status, Content-Range and version of the response were checked. */
	void (*progress)(struct ps_origin_get *get, size_t nbytes_so_far);
	/* Called exactly once, last. err->err == 0: the whole range has arrived; otherwise the first
	 * nbytes_done bytes, and these are valid. `done` may free the get or submit it again. */
	void (*done)(struct ps_origin_get *get, const struct ps_error *err);

	/* Filled by the origin before done. */
	size_t nbytes_done;
	struct ps_remote seen;  /* size and version in the response */
	uint64_t wire_nbytes;   /* body bytes received, including discarded ones */
	uint64_t first_byte_ns; /* time from submission; 0: no byte came */

	void *priv; /* the origin's, like `work` */
	struct ps_transfer_work work;
};

/* A request for the size and version of one object; the rules of a get apply. */
struct ps_origin_head {
	const char *url;
	bool fresh; /* as in a get */
	void (*done)(struct ps_origin_head *head, const struct ps_error *err);
	struct ps_remote seen; /* size is known after success */
	void *priv;            /* the origin's, like `work` */
	struct ps_transfer_work work;
};

struct ps_origin_ops {
	const char *name; /* "http", "file" */

	/* Calls fn for every object of the source, in any order, from the calling thread. Blocks on network
	 * and disk; retries retryable errors; bounded (PS_LIST_MAX_ENTRIES, page sizes, depth). An empty
	 * listing returns 0 without calls: the caller decides what it means. `stop` (may be NULL), set to
	 * true, ends it soon with -ECANCELED. */
	int (*list)(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop,
	        struct ps_error *err);
	void (*head)(struct ps_origin *o, struct ps_origin_head *head);
	void (*get)(struct ps_origin *o, struct ps_origin_get *get);
	/* Ends a get early: done is called soon, with ECANCELED unless the get was ending already. No
	 * effect on one that is not submitted (zeroed, or done). The get must be alive until cancel
	 * returns: the caller uses a lock of its own to keep done from freeing it meanwhile. */
	void (*cancel)(struct ps_origin *o, struct ps_origin_get *get);
	/* Ends every get and head early, as cancel does, and later ones at once. Used when an origin does
	 * not answer. Lists are ended by their stop flag. */
	void (*abort)(struct ps_origin *o);
	void (*close)(struct ps_origin *o);
	/* For a reference-counted origin that is based on another one: a reference for each pointer that is
	 * kept between calls. NULL: the origin lives until it is closed. */
	void (*ref)(struct ps_origin *o);
	void (*unref)(struct ps_origin *o);
};

/* The first member of every origin's private struct. */
struct ps_origin {
	const struct ps_origin_ops *ops;
	/* the origin from which this one reads its bytes (decompress/); a call that ends all work of the
	 * base also ends the work of this origin. NULL: none */
	struct ps_origin *base;
	/* its bytes are on this machine, or equally near: reading them twice costs little */
	bool local;
	bool heads_tell_sums; /* HEADs give checksums of objects, and gets do not */
	/* Called for each answer of 2xx that proves that this origin's credentials may read the object, so
	 * that its readers may get cached bytes. A get always proves it, a HEAD if it needs the same right.
	 * NULL: every access may read everything. Called by the receiver of the answer, with no lock held,
	 * before its bytes are used. */
	void (*proved)(void *arg, const char *url, const struct ps_remote *version, int64_t key_expires_s);
	void *proved_arg;
	/* The route, if it is not the usual one. Through a proxy, or with other trusted CAs, another server
	 * may answer for a URL, so objects of another route are different objects in the cache. NULL: the
	 * usual route. Borrowed. */
	const char *route;
	struct ps_lister lister; /* state of its listings */
	/* the shortest time in which one of its requests was answered; 0: no request was answered yet. NULL:
	 * not measured */
	const _Atomic uint64_t *answer_ns;
	/* true once it seems that the server answers no Range requests. NULL: not watched */
	const _Atomic bool *unranged;
	/* the tiers between this node and the origin; NULL: none. Borrowed */
	struct ps_tiers *tiers;
	/* a get is answered soonest if its range crosses no multiple of this number, which is a multiple of
	 * 1 MiB; 0: there is no such number */
	uint64_t slice_nbytes;
	bool heads_prove;
	bool proves_all; /* a proof for one object holds for all objects */
	/* HEADs in a row without a checksum; counted by the engine, which requests checksums */
	_Atomic unsigned sumless_heads;
};

/* How buckets of an S3 store are addressed. */
enum ps_s3_addressing {
	PS_S3_ADDRESSING_AUTO, /* Amazon's by host name, other stores by path */
	PS_S3_ADDRESSING_PATH,
	PS_S3_ADDRESSING_VIRTUAL,
};

/* Options of an origin; all are borrowed only during ps_origin_open(). Zero means the default. */
struct ps_origin_options {
	struct ps_http_options http;
	/* a file with the source's credentials: Google's JSON, a shared access signature of Azure's, the Hub's
	 * token; NULL: from the environment */
	const char *credentials;

	/* For stores with buckets. */
	/* https://HOST[:PORT]; NULL: $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, else the scheme's */
	const char *endpoint;
	const char *region;    /* NULL: from the environment or the profile, else learned from the store */
	const char *profile;   /* of the AWS configuration files; NULL: $AWS_PROFILE */
	bool no_sign_request;  /* anonymous */
	bool follow_redirects; /* of an S3 store, also to other hosts, without credentials */
	bool request_payer;    /* the requester pays for reads, not the bucket's owner */
	/* list the objects' versions, and read each object in its listed version */
	bool pin_versions;
	bool by_size; /* objects of one size count as one version, whatever their ETags and times */
	enum ps_s3_addressing addressing;
};

/* Takes a SOURCE as the user wrote it (see penstock-mount(1)): URL with braces, a URL ending in "/", a
 * manifest (URL ending in .txt, or @file), file:///dir/ or /dir/. Sends no request; reads a local @file.
 * -EINVAL with a text for an unknown scheme or a malformed source. */
int ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

/* SOURCE in canonical form without credentials, signatures and fragments: the identity of a dataset, fit for
 * logs and the index. The caller frees it. NULL with *err filled for a malformed source. */
char *ps_source_canonical(const char *source, struct ps_error *err);

/* Access and route --------------------------------------------------------------------------------------- */

/* The access and the route of an origin, as digests of everything in source, options, environment and files
 * that decides them.
 *
 * Two mounts with the same access send the same requests with the same credentials. The digest covers more
 * than may matter (a whole profile file, for example): if two digests differ needlessly, the only cost is one
 * more access; if two were equal by mistake, one mount would use another's credentials. For the token of a
 * role or a container, the digest covers the place from which the token is read, not its present value,
 * because such credentials are renewed.
 *
 * Ownership: the caller's. Threads: any. Blocks on disk, for files of credentials. */

#define PS_ROUTE_TEXT_LEN 512

/* Unkeyed digests of secrets: only keyed ones (ps_store_fingerprint()) may be stored or printed. */
struct ps_identity {
	struct ps_id access;
	/* what a listing depends on besides the source: datasets with the same value may share names */
	struct ps_id names;
	bool names_for_all; /* names is the same for every access, as in a bucket's listing */
	/* the store's endpoint was given: its tenants may have buckets of the same name */
	bool has_endpoint;
	/* digest of the proxy and the trusted CAs: with others, another server may answer for a host */
	struct ps_id route;
	/* no credentials, and the usual route: every such access gets the same answers */
	bool anonymous;
	bool has_route; /* the route is not the usual one (no proxy, the system's CAs) */
	/* the route for people, without secrets: "proxy p:3128, certificates of /etc/ca.pem"; "": the usual one */
	char route_text[PS_ROUTE_TEXT_LEN];
};

/* canonical: ps_source_canonical(source). -ENOMEM. */
int ps_identity_of(const char *source, const char *canonical, const struct ps_origin_options *options,
        struct ps_identity *ret) PS_MUST_USE;

#endif
