// A server with OpenAI's API that sends tokens at scripted times and logs what it did. Linux, no libraries.
//
//   truth_server TTFT_MS TPOT_MS LOG
//
// It listens on a free port of 127.0.0.1 and prints its URL. It serves until its standard input is closed, and then
// writes LOG: a line of JSON for each completion, in the order of the requests. Times are in ns of CLOCK_MONOTONIC:
//   read   the request is complete
//   first  the write of the first token
//   last   the write of the last token
//   late   the largest delay of a token against the script
// Each token is one event, one HTTP chunk and one write. A request decides only the number of tokens (max_tokens).

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HEAD = 64 << 10, MAX_BODY = 64 << 20, MAX_REPLY = 4096, DEFAULT_TOKENS = 16, EVENTS = 1024 };

// A completion. It stays in memory for the log.
typedef struct Completion {
    int64_t read_ns, first_ns, last_ns, late_ns, due_ns;
    int tokens, sent, prompt_tokens;
    bool is_chat, streams, usage_at_end, usage_always, broken;
    struct Connection *connection;  // null after the end
    struct Completion *next_due, *next_logged;
} Completion;

typedef struct Connection {
    int fd;
    char *in, *out;
    size_t in_size, in_room, out_size, out_room;
    Completion *completion;  // the open completion
} Connection;

// Completions in the order of their due times. First tokens and later tokens have separate queues: within a queue, each
// new due time is the largest, because both intervals are constant.
typedef struct {
    Completion *head, **tail;
} Queue;

static int64_t ttft_ns, tpot_ns;
static int poll_fd, timer_fd, listen_fd;
static Queue first_tokens, later_tokens;
static Completion *logged, **logged_tail = &logged;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void push(Queue *queue, Completion *completion, int64_t due_ns) {
    completion->due_ns = due_ns;
    completion->next_due = NULL;
    *queue->tail = completion;
    queue->tail = &completion->next_due;
}

static Completion *pop(Queue *queue) {
    Completion *completion = queue->head;
    queue->head = completion->next_due;
    if (!queue->head)
        queue->tail = &queue->head;
    return completion;
}

static void append(char **buffer, size_t *size, size_t *room, const char *data, size_t count) {
    if (*size + count + 1 > *room) {
        *room = 2 * (*size + count + 1);
        *buffer = realloc(*buffer, *room);
        if (!*buffer)
            die("memory");
    }
    memcpy(*buffer + *size, data, count);
    *size += count;
    (*buffer)[*size] = 0;
}

// Connections ---------------------------------------------------------------------------------------------------------

static void close_connection(Connection *connection) {
    if (connection->completion) {
        connection->completion->broken = true;  // it stays in its queue
        connection->completion->connection = NULL;
    }
    close(connection->fd);
    free(connection->in);
    free(connection->out);
    free(connection);
}

static void watch(Connection *connection, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(poll_fd, operation, connection->fd, &event) < 0)
        die("epoll_ctl");
}

// Send what the socket takes; return false if the connection is lost.
static bool flush(Connection *connection) {
    size_t done = 0;
    while (done < connection->out_size) {
        ssize_t count = send(connection->fd, connection->out + done, connection->out_size - done, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno != EAGAIN)
            return false;
        if (count < 0)
            break;
        done += (size_t)count;
    }
    bool waited = done < connection->out_size;
    memmove(connection->out, connection->out + done, connection->out_size - done);
    connection->out_size -= done;
    if (waited)
        watch(connection, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    return true;
}

// Send data after all that waits already. The caller's connection may be lost; its next event shows this.
static void put(Connection *connection, const char *data, size_t count) {
    bool waits = connection->out_size > 0;
    append(&connection->out, &connection->out_size, &connection->out_room, data, count);
    if (!waits && !flush(connection))
        shutdown(connection->fd, SHUT_RDWR);
}

static void reply(Connection *connection, int status, const char *body) {
    char text[MAX_REPLY];
    int count = snprintf(text, sizeof text,
                         "HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", status,
                         status == 200 ? "OK" : "Error", strlen(body), body);
    put(connection, text, (size_t)count);
}

// Tokens --------------------------------------------------------------------------------------------------------------

typedef struct {
    char text[MAX_REPLY];
    size_t size;
} Reply;

static void add_event(Reply *made, const char *data) {
    made->size += (size_t)snprintf(made->text + made->size, sizeof made->text - made->size,
                                   "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
}

static void format_usage(char *text, size_t room, const Completion *completion) {
    snprintf(text, room, "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}",
             completion->prompt_tokens, completion->sent, completion->prompt_tokens + completion->sent);
}

// Format an event with `choices`; the usage is omitted if it was not requested for each event.
static void add_choices(Reply *made, const Completion *completion, const char *choices) {
    char usage[128] = "null", data[1024];
    if (completion->usage_always)
        format_usage(usage, sizeof usage, completion);
    snprintf(data, sizeof data,
             "{\"id\":\"cmpl-%lx\",\"object\":\"%s\",\"created\":1,\"model\":\"truth\",\"choices\":[%s]%s%s}",
             (unsigned long)completion->read_ns, completion->is_chat ? "chat.completion.chunk" : "text_completion",
             choices, completion->usage_always ? ",\"usage\":" : "", completion->usage_always ? usage : "");
    add_event(made, data);
}

static void stream_token(Completion *completion) {
    Reply made = {.size = 0};
    char choices[256];
    bool is_last = completion->sent == completion->tokens;
    const char *reason = is_last ? "\"length\"" : "null";
    if (completion->sent == 1) {
        made.size = (size_t)sprintf(made.text, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                                               "transfer-encoding: chunked\r\n\r\n");
        if (completion->is_chat)
            add_choices(&made, completion,
                        "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}");
    }
    snprintf(choices, sizeof choices,
             completion->is_chat ? "{\"index\":0,\"delta\":{\"content\":\" the\"},\"finish_reason\":%s}"
                                 : "{\"index\":0,\"text\":\" the\",\"logprobs\":null,\"finish_reason\":%s}",
             reason);
    add_choices(&made, completion, choices);
    if (is_last) {
        if (completion->usage_at_end) {
            char usage[128], data[512];
            format_usage(usage, sizeof usage, completion);
            snprintf(data, sizeof data,
                     "{\"id\":\"cmpl-%lx\",\"object\":\"%s\",\"created\":1,\"model\":\"truth\",\"choices\":[],"
                     "\"usage\":%s}",
                     (unsigned long)completion->read_ns,
                     completion->is_chat ? "chat.completion.chunk" : "text_completion", usage);
            add_event(&made, data);
        }
        add_event(&made, "[DONE]");
        made.size += (size_t)sprintf(made.text + made.size, "0\r\n\r\n");
    }
    put(completion->connection, made.text, made.size);
}

static void send_whole(Completion *completion) {
    char usage[128], head[512];
    Connection *connection = completion->connection;
    format_usage(usage, sizeof usage, completion);
    char *body = NULL;
    size_t size = 0, room = 0;
    int count = snprintf(head, sizeof head, "{\"id\":\"cmpl-%lx\",\"object\":\"%s\",\"created\":1,\"model\":\"truth\","
                         "\"usage\":%s,\"choices\":[{\"index\":0,\"finish_reason\":\"length\",%s\"",
                         (unsigned long)completion->read_ns, completion->is_chat ? "chat.completion" : "text_completion",
                         usage, completion->is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    append(&body, &size, &room, head, (size_t)count);
    for (int token = 0; token < completion->tokens; token++)
        append(&body, &size, &room, " the", 4);
    const char *end = completion->is_chat ? "\"}}]}" : "\"}]}";
    append(&body, &size, &room, end, strlen(end));
    count = snprintf(head, sizeof head,
                     "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n", size);
    put(connection, head, (size_t)count);
    put(connection, body, size);
    free(body);
}

static void read_requests(Connection *connection);

// Send the next token of a completion, and plan the token after it.
static void advance(Completion *completion) {
    if (completion->broken)
        return;
    Connection *connection = completion->connection;
    int64_t sent_ns = now();
    completion->sent++;
    if (completion->sent == 1)
        completion->first_ns = sent_ns;
    completion->last_ns = sent_ns;
    if (sent_ns - completion->due_ns > completion->late_ns)
        completion->late_ns = sent_ns - completion->due_ns;
    if (completion->streams)
        stream_token(completion);
    if (completion->sent < completion->tokens) {
        push(&later_tokens, completion, completion->due_ns + tpot_ns);
        return;
    }
    if (!completion->streams)
        send_whole(completion);
    completion->connection = NULL;
    connection->completion = NULL;
    read_requests(connection);  // a request may have arrived meanwhile
}

// Requests ------------------------------------------------------------------------------------------------------------

// Find the value of a field. A string within a string has escaped quotation marks, so the search finds only fields.
static const char *field(const char *body, const char *name) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    for (const char *place = body; (place = strstr(place, quoted)); place++) {
        const char *value = place + strlen(quoted);
        value += strspn(value, " \t\r\n");
        if (*value == ':')
            return value + 1 + strspn(value + 1, " \t\r\n");
    }
    return NULL;
}

static bool is_true(const char *body, const char *name) {
    const char *value = field(body, name);
    return value && !strncmp(value, "true", 4);
}

static void start_completion(Connection *connection, const char *body, size_t size, bool is_chat) {
    Completion *completion = calloc(1, sizeof *completion);
    if (!completion)
        die("memory");
    const char *count = field(body, "max_completion_tokens");
    if (!count || *count == 'n')
        count = field(body, "max_tokens");
    completion->tokens = count && *count != 'n' ? atoi(count) : DEFAULT_TOKENS;
    if (completion->tokens < 1)
        completion->tokens = 1;
    completion->prompt_tokens = (int)(size / 4);  // without a tokenizer: four bytes per token
    completion->is_chat = is_chat;
    completion->streams = is_true(body, "stream");
    completion->usage_at_end = is_true(body, "include_usage");
    completion->usage_always = is_true(body, "continuous_usage_stats");
    completion->connection = connection;
    completion->read_ns = now();
    connection->completion = completion;
    *logged_tail = completion;
    logged_tail = &completion->next_logged;
    push(&first_tokens, completion, completion->read_ns + ttft_ns);
}

static bool starts_with(const char *text, const char *start) {
    return !strncmp(text, start, strlen(start));
}

static void answer(Connection *connection, const char *head, const char *body, size_t size) {
    bool completes = starts_with(head, "POST /v1/completions "), chats = starts_with(head, "POST /v1/chat/completions ");
    if (completes || chats) {
        if (size && body[size - 1] == '}')
            start_completion(connection, body, size, chats);
        else
            reply(connection, 400, "{\"error\":{\"message\":\"the body is not a JSON object\"}}");
    } else if (starts_with(head, "GET /v1/models ")) {
        reply(connection, 200, "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\",\"created\":1,"
                               "\"owned_by\":\"truth\"}]}");
    } else if (starts_with(head, "GET /health ") || starts_with(head, "GET / ")) {
        reply(connection, 200, "{}");
    } else {
        reply(connection, 404, "{\"error\":{\"message\":\"no such route\"}}");
    }
}

// Handle each complete request in the buffer, until a completion is open.
static void read_requests(Connection *connection) {
    while (connection->in_size && !connection->completion) {
        char *end = strstr(connection->in, "\r\n\r\n");
        if (!end)
            return;
        char *body = end + 4;
        long size = 0;
        for (char *line = connection->in; line && line < end; line = strstr(line, "\r\n") + 2)
            if (!strncasecmp(line, "content-length:", 15))
                size = atol(line + 15);
        size_t total = (size_t)(body - connection->in) + (size_t)size;
        if (size < 0 || size > MAX_BODY || connection->in_size < total)
            return;
        char after = body[size];
        body[size] = 0;
        answer(connection, connection->in, body, (size_t)size);
        body[size] = after;
        connection->in_size -= total;
        memmove(connection->in, connection->in + total, connection->in_size + 1);
    }
}

// Read what the socket has; return false if the connection is lost.
static bool receive(Connection *connection) {
    char data[64 << 10];
    for (;;) {
        ssize_t count = recv(connection->fd, data, sizeof data, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 && errno == EAGAIN;
        append(&connection->in, &connection->in_size, &connection->in_room, data, (size_t)count);
        if ((size_t)count < sizeof data)
            return connection->in_size < MAX_HEAD + (size_t)MAX_BODY;
    }
}

static void accept_connections(void) {
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), yes = 1;
        if (fd < 0)
            return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        Connection *connection = calloc(1, sizeof *connection);
        if (!connection)
            die("memory");
        connection->fd = fd;
        watch(connection, EPOLL_CTL_ADD, EPOLLIN);
    }
}

// The loop ------------------------------------------------------------------------------------------------------------

// Return the queue whose head is due first; null if both are empty.
static Queue *next_queue(void) {
    if (!first_tokens.head || !later_tokens.head)
        return first_tokens.head ? &first_tokens : later_tokens.head ? &later_tokens : NULL;
    return first_tokens.head->due_ns < later_tokens.head->due_ns ? &first_tokens : &later_tokens;
}

static void send_due_tokens(void) {
    for (Queue *queue; (queue = next_queue()) && queue->head->due_ns <= now();)
        advance(pop(queue));
}

static void set_timer(void) {
    Queue *queue = next_queue();
    int64_t due_ns = queue ? queue->head->due_ns : 0;  // 0 turns the timer off
    struct itimerspec timer = {.it_value = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

static void handle(Connection *connection, uint32_t events) {
    bool is_open = !(events & (EPOLLERR | EPOLLHUP));
    if (is_open && events & EPOLLOUT) {
        is_open = flush(connection);
        if (is_open && !connection->out_size)
            watch(connection, EPOLL_CTL_MOD, EPOLLIN);
    }
    if (is_open && events & EPOLLIN)
        is_open = receive(connection);
    if (is_open)
        read_requests(connection);
    else
        close_connection(connection);
}

static void serve(void) {
    struct epoll_event events[EVENTS];
    for (;;) {
        set_timer();
        int count = epoll_wait(poll_fd, events, EVENTS, -1);
        send_due_tokens();
        for (int place = 0; place < count; place++) {
            void *source = events[place].data.ptr;
            if (source == &listen_fd)
                accept_connections();
            else if (source == &timer_fd)
                continue;
            else if (source == &poll_fd)
                return;  // the standard input is closed
            else
                handle(source, events[place].events);
            send_due_tokens();
        }
    }
}

static void add_source(int fd, void *source, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl");
}

static void write_log(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file)
        die(path);
    for (Completion *done = logged; done; done = done->next_logged)
        fprintf(file, "{\"read\":%lld,\"first\":%lld,\"last\":%lld,\"late\":%lld,\"tokens\":%d}\n",
                (long long)done->read_ns, (long long)done->first_ns, (long long)done->last_ns, (long long)done->late_ns,
                done->sent);
    if (fclose(file))
        die(path);
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: truth_server TTFT_MS TPOT_MS LOG\n");
        return 2;
    }
    ttft_ns = (int64_t)(atof(arguments[1]) * 1e6);
    tpot_ns = (int64_t)(atof(arguments[2]) * 1e6);
    first_tokens.tail = &first_tokens.head;
    later_tokens.tail = &later_tokens.head;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(listen_fd, (struct sockaddr *)&address, size) < 0 || listen(listen_fd, 4096) < 0)
        die("listen");
    getsockname(listen_fd, (struct sockaddr *)&address, &size);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    add_source(listen_fd, &listen_fd, EPOLLIN);
    add_source(timer_fd, &timer_fd, EPOLLIN | EPOLLET);
    add_source(STDIN_FILENO, &poll_fd, EPOLLIN);
    printf("http://127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    serve();
    write_log(arguments[3]);
}
