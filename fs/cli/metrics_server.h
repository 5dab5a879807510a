/* The HTTP server of `penstock metrics --listen`. HTTP is parsed in a process of its own without privileges; all that it
 * can ask this process for is the text of the metrics. */
#ifndef PS_METRICS_SERVER_H
#define PS_METRICS_SERVER_H

/* Returns the text for Prometheus, which the caller frees, or NULL after it has printed the reason. */
typedef char *ps_metrics_fn(void *arg);

/* Serves fn(arg) as http://ADDRESS:PORT/metrics until the process ends. `where` is "PORT" (of 127.0.0.1),
 * "ADDRESS:PORT" or "[IPv6]:PORT"; port 0 takes a free one. Prints the URL to stderr once it listens. Requests that
 * arrive while fn runs share its result; at most 8 connections are served at a time. fn is called on this thread.
 * Returns an exit code after it has printed the reason: the address cannot be used, or the server has died. */
int ps_metrics_serve(const char *where, ps_metrics_fn *fn, void *arg);

#endif
