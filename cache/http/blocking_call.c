#include "http/http.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>
#include <openssl/crypto.h>

#include "base/url.h"

struct running {
	const struct ps_http_call *call;
	struct ps_answer *answer;
	bool too_long;
};

void ps_answer_fini(struct ps_answer *answer)
{
	if (answer->body)
		OPENSSL_cleanse(answer->body, answer->nbytes);
	free(answer->body);
	*answer = (struct ps_answer){0};
}

/* The buffer has its full size from the start: growing it would leave copies of secrets in memory. */
static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
	struct running *r = arg;

	n *= size;
	if (n > PS_HTTP_CALL_MAX_NBYTES - r->answer->nbytes) {
		r->too_long = true;
		return 0;
	}
	memcpy(r->answer->body + r->answer->nbytes, bytes, n);
	r->answer->nbytes += n;
	return n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct running *r = arg;

	(void)a, (void)b, (void)c, (void)d;
	return r->call->stop && atomic_load(r->call->stop);
}

static void free_headers(struct curl_slist *headers)
{
	for (struct curl_slist *h = headers; h; h = h->next)
		OPENSSL_cleanse(h->data, strlen(h->data));
	curl_slist_free_all(headers);
}

static int add_header(struct curl_slist **headers, const char *header)
{
	struct curl_slist *more = curl_slist_append(*headers, header);

	if (!more)
		return -ENOMEM;
	*headers = more;
	return 0;
}

static int set_up(CURL *curl, struct running *r, struct curl_slist **headers, char *text)
{
	const struct ps_http_call *call = r->call;
	int rc = add_header(headers, "Expect:");

	if (!rc && strcmp(call->method, "PUT") == 0)
		rc = add_header(headers, "Content-Type:");
	for (size_t i = 0; !rc && call->headers[i]; i++)
		rc = add_header(headers, call->headers[i]);
	if (rc || curl_easy_setopt(curl, CURLOPT_URL, call->url) != CURLE_OK)
		return -ENOMEM;
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
	if (call->body || strcmp(call->method, "GET") != 0) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body ? call->body : "");
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
	}
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)call->timeout_ms);
	rc = ps_http_access_set(call->access, curl, call->url, false);
	if (rc)
		return rc;
	if (call->ca_file)
		curl_easy_setopt(curl, CURLOPT_CAINFO, call->ca_file);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, r);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, text);
	return 0;
}

static int errnum_of(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
		return EHOSTUNREACH;
	case CURLE_OPERATION_TIMEDOUT:
		return ETIMEDOUT;
	case CURLE_ABORTED_BY_CALLBACK:
		return ECANCELED;
	case CURLE_OUT_OF_MEMORY:
		return ENOMEM;
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_URL_MALFORMAT:
		return EINVAL;
	case CURLE_WEIRD_SERVER_REPLY:
		return EPROTO;
	default:
		return EIO;
	}
}

static int run(CURL *curl, struct running *r, struct ps_error *err)
{
	char text[CURL_ERROR_SIZE] = "", safe[PS_URL_TEXT_LEN];
	struct curl_slist *headers = NULL;
	long status = 0;
	CURLcode code = CURLE_OUT_OF_MEMORY;

	if (set_up(curl, r, &headers, text) == 0)
		code = curl_easy_perform(curl);
	free_headers(headers);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
	ps_url_redact(r->call->url, safe);
	if (r->too_long)
		return ps_error_set(err, EFBIG, "%s %s: the answer has more than %u bytes", r->call->method,
		        safe, PS_HTTP_CALL_MAX_NBYTES);
	if (code != CURLE_OK)
		return ps_error_set(err, errnum_of(code), "%s %s: %s", r->call->method, safe,
		        text[0] ? text : curl_easy_strerror(code));
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	r->answer->status = (int)status;
	r->answer->body[r->answer->nbytes] = '\0';
	return 0;
}

int ps_http_call_run(const struct ps_http_call *call, struct ps_answer *ret, struct ps_error *err)
{
	ps_autoanswer struct ps_answer answer = {.body = malloc(PS_HTTP_CALL_MAX_NBYTES + 1)};
	struct running r = {.call = call, .answer = &answer};
	CURL *curl = curl_easy_init();
	int rc;

	if (answer.body && curl)
		rc = run(curl, &r, err);
	else
		rc = ps_error_set(err, ENOMEM, "out of memory");
	curl_easy_cleanup(curl);
	if (rc)
		return rc;
	*ret = answer;
	answer = (struct ps_answer){0};
	return 0;
}
