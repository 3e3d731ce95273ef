/* SPDX-License-Identifier: Apache-2.0
 *
 * limbeck/abi.h - everything that crosses between the limbeck host and a plugin.
 *
 * Five rules hold for every declaration below.
 *   Grow    A struct that begins with struct_size grows at its end, any other is final.
 *           A reader tests LB_HAS before it touches a member that was not in v1.0; a
 *           function pointer may be NULL: test LB_CAN.
 *   Own     `const T*` and `T* const*` arguments are lent for the call. `T** out` hands
 *           the receiver one reference, which it gives back with the matching release.
 *           A parameter named `taken` passes to the callee, whatever it returns.
 *   Fail    NULL status is success. On failure every out argument is left untouched.
 *   Stay    No C++ exception, longjmp or signal handler crosses a function pointer.
 *   Agree   What decides how many calls of models->run, backward, lb_data or a group
 *           function happen, and in which order, is equal on every rank. All of them can
 *           be collectives; a rank that makes one call fewer stops all others.
 * A tag in brackets names the threads a function may be called on: see "Threads".
 * All strings are UTF-8 and NUL-terminated; descriptors live as long as the process.
 * `lb_x_vtable` is filled by a plugin; `lb_x_api`, and any struct with `ctx`, by the host. */
/* clang-format off: the tables are laid out by hand */
#ifndef LIMBECK_ABI_H
#define LIMBECK_ABI_H

#include <stddef.h>
#include <stdint.h>

#define LB_ABI_MAJOR 1 /* part of the entry symbol's name; a new major is a new symbol */
#define LB_ABI_MINOR 0 /* counts additions; never a reason to refuse an older plugin    */

#define LB_EXPORT __attribute__((visibility("default")))
#if defined(__cplusplus) && !defined(LB_HOST_BUILD)
#define LB_NOEXCEPT noexcept /* an unguarded C++ function will not convert to these types */
#else
#define LB_NOEXCEPT
#endif

#ifdef __cplusplus
#define LB_CAST(type, value) (static_cast<type>(value))
#define LB_BYTES(pointer) (reinterpret_cast<const char*>(pointer))
#else
#define LB_CAST(type, value) ((type)(value))
#define LB_BYTES(pointer) ((const char*)(pointer))
#endif

/* True when the struct's writer knew `member`, and, for LB_CAN, also filled it in. */
#define LB_HAS(p, member) \
  (LB_CAST(size_t, LB_BYTES(&(p)->member + 1) - LB_BYTES(p)) <= LB_CAST(size_t, (p)->struct_size))
#define LB_CAN(p, member) (LB_HAS(p, member) && (p)->member != NULL)

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Threads -----------------------------------------------------------------------
 * [control]  the thread that runs the training loop; one per process, always the same.
 * [compute]  [control], or a libtorch autograd thread while backward runs. Never two at
 *            once for one instance. Thread-local state of [control] is not visible there.
 * [worker]   a data-loading thread; one instance is only ever used by one at a time.
 * [any]      may be called concurrently from anywhere. */

/* ---- Status ------------------------------------------------------------------------ */

typedef int32_t lb_code;
enum {
  LB_OK = 0,
  LB_CANCELLED = 1, /* the user asked to stop; not an error to report          */
  LB_UNKNOWN = 2,
  LB_INVALID_ARGUMENT = 3, /* the caller's fault: bad option, shape, dtype, name      */
  LB_NOT_FOUND = 5,
  LB_PERMISSION_DENIED = 7,
  LB_HOST_OOM = 8,
  LB_FAILED_PRECONDITION = 9,
  LB_OUT_OF_RANGE = 11, /* also: a stream of samples has ended                     */
  LB_UNIMPLEMENTED = 12,
  LB_INTERNAL = 13,    /* a bug on the side that returns it                       */
  LB_UNAVAILABLE = 14, /* may work later: I/O, network; from save(): not now      */
  LB_DATA_LOSS = 15,   /* a checkpoint or data file is damaged                    */
  LB_DEVICE_OOM = 100,
  LB_NONFINITE = 101, /* a loss or gradient is inf or nan                        */
  LB_VERSION_MISMATCH = 102
};

/* An error with its code, message, origin and the frames added while it travelled.
 * Made and destroyed by the host alone, so it can outlive the plugin's heap and C++
 * runtime. Returning one hands it over; dropping one is lb_host.drop. */
typedef struct lb_status lb_status;

/* ---- Host -------------------------------------------------------------------------- */

typedef int32_t lb_level;
enum { LB_TRACE, LB_DEBUG, LB_INFO, LB_WARN, LB_ERROR };

typedef int32_t lb_stop;
enum {
  LB_GO_ON = 0,
  LB_STOP_SOON = 1, /* finish the step in hand; the host saves and ends after it */
  LB_STOP_NOW = 2   /* leave rank-local work at once and return LB_CANCELLED     */
};

typedef struct lb_host lb_host;
struct lb_host {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor;
  const char* version;   /* of limbeck                                               */
  const char* torch_tag; /* of the libtorch in this process, see lb_plugin.torch_tag */
  void* ctx;

  /* An interface table by id ("limbeck.tensor/1"), or NULL if this host has none. The
   * table lives as long as the process. Ask once, in init, and keep the pointer. [any] */
  const void* (*get_service)(const lb_host* host, const char* id)LB_NOEXCEPT;

  /* Makes a status. Copies the text. Never NULL: out of memory has a static one. [any] */
  lb_status* (*fail)(const lb_host* host,
                     lb_code code,
                     const char* file,
                     int32_t line,
                     const char* message)LB_NOEXCEPT;
  /* Adds a frame ("while building blocks.3") and returns the same status. [any] */
  lb_status* (*context)(const lb_host* host,
                        lb_status* status,
                        const char* file,
                        int32_t line,
                        const char* message)LB_NOEXCEPT;
  lb_code (*code)(const lb_status* status) LB_NOEXCEPT;       /* LB_OK for NULL [any] */
  const char* (*message)(const lb_status* status)LB_NOEXCEPT; /* lives as the status  */
  void (*drop)(lb_status* status) LB_NOEXCEPT;                /* NULL is fine   [any] */

  int32_t (*log_enabled)(const lb_host* host, lb_level level) LB_NOEXCEPT; /* [any] */
  void (*log)(const lb_host* host,
              lb_level level,
              const char* component,
              const char* file,
              int32_t line,
              const char* message) LB_NOEXCEPT; /* [any] */
  /* For work over a second: "building the trajectory cache", 17 of 400. The host decides
   * what to show and how often. `total` is -1 when unknown. [any] */
  void (*progress)(const lb_host* host, const char* what, int64_t done, int64_t total) LB_NOEXCEPT;

  /* Poll in rank-local loops that can take over 100 ms. Never poll between collectives:
   * the ranks would leave at different places and hang. [any] */
  lb_stop (*poll_stop)(const lb_host* host) LB_NOEXCEPT;
};

/* ---- Options: what a manifest may say to a component -------------------------------- */

typedef int32_t lb_type;
enum {
  LB_BOOL, /* read with integer(): 0 or 1                                */
  LB_INT,
  LB_FLOAT,
  LB_STRING,
  LB_PATH, /* relative to the manifest; text() gives the absolute path   */
  LB_ENUM, /* read with text()                                           */
  LB_TABLE
};

enum {
  LB_OPT_LIST = 1u << 0,       /* an array of `type`                                       */
  LB_OPT_ON_RESUME = 1u << 1,  /* may differ from the value a checkpoint was made with     */
  LB_OPT_DEPRECATED = 1u << 2, /* accepted with a warning; `doc` says what replaces it     */
  LB_OPT_SECRET = 1u << 3,     /* never logged, tracked or written to a checkpoint         */
  LB_OPT_OPEN = 1u << 4        /* LB_TABLE: any key, every value is of fields.items[0]     */
};

typedef struct lb_option lb_option;
typedef struct lb_options {
  uint32_t stride; /* sizeof(lb_option) where the table was compiled */
  uint32_t count;
  const lb_option* items;
} lb_options;

/* The host checks a manifest against these tables before it creates anything, fills in
 * defaults, prints help and proposes the nearest name for a misspelt one. */
struct lb_option {
  const char* name; /* [a-z][a-z0-9_]*                                                   */
  lb_type type;
  uint32_t flags;
  const char* doc;            /* one sentence, then details after a blank line          */
  const char* fallback;       /* the default as TOML text ("0.25", "[21, 60]"); NULL: required */
  const char* range;          /* an interval ("(0, 1]", "[1, inf)"), or NULL            */
  const char* const* choices; /* LB_ENUM: NULL-terminated                               */
  lb_options fields;          /* LB_TABLE                                               */
  const char* alias; /* NULL, or the manifest key this is another name of, which the host then
                      * sets: "models.critic.optimizer.learning_rate"                       */
};
#define LB_OPTIONS(array)                                                                        \
  {                                                                                              \
    LB_CAST(uint32_t, sizeof(lb_option)), LB_CAST(uint32_t, sizeof(array) / sizeof((array)[0])), \
        (array)                                                                                  \
  }

/* A checked table of options. Every getter succeeds for an option the component declared;
 * for any other path it logs a plugin bug and returns zero. Paths use dots, also into
 * lists ("steps.2"). Lent to create(): copy what is needed later. [any] */
typedef struct lb_config lb_config;
typedef struct lb_config_api { /* "limbeck.config/1" */
  uint32_t struct_size;
  uint32_t reserved;
  int64_t (*integer)(const lb_config* config, const char* path) LB_NOEXCEPT;
  double (*number)(const lb_config* config, const char* path) LB_NOEXCEPT;
  const char* (*text)(const lb_config* config, const char* path)LB_NOEXCEPT;
  /* Items of a list, keys of an open table; key() names the latter in manifest order. */
  int64_t (*length)(const lb_config* config, const char* path) LB_NOEXCEPT;
  const char* (*key)(const lb_config* config, const char* path, int64_t index)LB_NOEXCEPT;
  int32_t (*given)(const lb_config* config, const char* path) LB_NOEXCEPT; /* by the user */
} lb_config_api;

/* ---- Plugin ------------------------------------------------------------------------- */

/* One thing a plugin offers: a model, a method, a loss, ... */
typedef struct lb_component {
  uint32_t struct_size;
  uint32_t state_version; /* raised when save() writes something new          */
  const char* kind;       /* fixes the type of `vtable`: "limbeck.method/1"   */
  const char* name;       /* what a manifest says: "dmd2"                     */
  const char* doc;        /* Markdown; the first line is the summary          */
  lb_options options;
  const char* const* provides; /* capabilities, NULL-terminated, may be NULL       */
  const void* vtable;
  /* A table by id for what is not, or not yet, part of the kind; its functions take the
   * instance. NULL pointer or NULL result: none. Drafts arrive here. [any] */
  const void* (*get_extension)(const char* id)LB_NOEXCEPT;
} lb_component;

/* What a plugin keeps for itself between init and shutdown. Never read by the host. */
typedef struct lb_state lb_state;

typedef struct lb_plugin {
  uint32_t struct_size;
  uint16_t abi_minor;      /* LB_ABI_MINOR of the header it was compiled with         */
  uint16_t min_host_minor; /* the oldest host it works with; 0 unless it needs more   */
  const char* id;          /* reverse domain: "org.example.dmd2"                      */
  const char* version;     /* semantic version of the plugin                          */
  const char* license;     /* SPDX                                                    */
  const char* torch_tag;   /* NULL: uses only this header. Else it shares C++ objects
                            * with libtorch and loads only where the tags are equal.   */
  uint32_t n_components;
  uint32_t reserved;
  const lb_component* const* components;
  /* Once per process, before anything else. `out` may stay NULL. May be NULL. [control] */
  lb_status* (*init)(const lb_host* host, lb_state** out)LB_NOEXCEPT;
  /* Once, after every instance is gone. The library stays mapped. May be NULL. [control] */
  void (*shutdown)(lb_state* state) LB_NOEXCEPT;
} lb_plugin;

/* The only symbol a plugin exports. Returns static data; does nothing else. */
LB_EXPORT const lb_plugin* limbeck_plugin_v1(void);

/* In every vtable below create() and open() check the rules between options, touch no
 * device and no data, and are cheap: `limbeck check` calls them to validate a manifest.
 * `self` is whatever they stored in `out`; destroy() and close() never fail. */

/* ---- Tensors ------------------------------------------------------------------------ */

/* A heap-allocated at::Tensor: the same bits as libtorch's AtenTensorHandle. It carries
 * its autograd history. Plugins with a torch_tag may reinterpret it as at::Tensor*. */
typedef struct lb_tensor lb_tensor;

typedef int32_t lb_dtype;
enum {
  LB_F32 = 0,
  LB_F64,
  LB_F16,
  LB_BF16,
  LB_I64,
  LB_I32,
  LB_I16,
  LB_I8,
  LB_U8,
  LB_MASK,
  LB_F8E4M3FN,
  LB_F8E5M2
};

typedef int32_t lb_place;
enum { LB_CPU = 0, LB_DEVICE = 1 /* the run's device, which can be the CPU */ };

typedef struct lb_tensor_info {
  uint32_t struct_size; /* set by the caller */
  lb_dtype dtype;
  int32_t device_type; /* DLPack's numbering */
  int32_t device_index;
  uint32_t ndim;
  uint32_t requires_grad;
  const int64_t* sizes; /* live as long as the tensor handle */
  const int64_t* strides;
  void* data;   /* device memory; NULL if there is none                              */
  void* stream; /* this thread's stream on that device (cudaStream_t); NULL on a CPU */
} lb_tensor_info;

typedef struct lb_grad_fn { /* a differentiable function of the plugin's own */
  uint32_t struct_size;
  uint32_t reserved;
  void* self;
  lb_status* (*forward)(void* self,
                        lb_tensor* const* in,
                        uint32_t n_in,
                        lb_tensor** out,
                        uint32_t n_out)LB_NOEXCEPT; /* grad mode off [compute] */
  /* A slot of grad_in left NULL, or an entry of grad_out that is NULL, is zero. [compute] */
  lb_status* (*backward)(void* self,
                         lb_tensor* const* in,
                         uint32_t n_in,
                         lb_tensor* const* grad_out,
                         uint32_t n_out,
                         lb_tensor** grad_in)LB_NOEXCEPT;
  void (*release)(void* self) LB_NOEXCEPT; /* exactly once, whatever happens [any] */
} lb_grad_fn;

struct DLManagedTensorVersioned;

typedef struct lb_tensor_api { /* "limbeck.tensor/1"; every function is [any] */
  uint32_t struct_size;
  uint32_t reserved;
  lb_tensor* (*retain)(const lb_tensor* tensor)LB_NOEXCEPT; /* a second handle, same tensor */
  void (*release)(lb_tensor* tensor) LB_NOEXCEPT;           /* NULL is fine */
  lb_status* (*info)(const lb_tensor* tensor, lb_tensor_info* out)LB_NOEXCEPT;
  /* A contiguous tensor with a copy of `data` (host memory), or uninitialised for NULL. */
  lb_status* (*create)(lb_dtype dtype,
                       const int64_t* sizes,
                       uint32_t ndim,
                       const void* data,
                       lb_place place,
                       lb_tensor** out)LB_NOEXCEPT;
  /* Copies the elements, contiguous and as `dtype`, into host memory. Synchronises. */
  lb_status* (*read)(const lb_tensor* tensor, lb_dtype dtype, void* out, uint64_t bytes)LB_NOEXCEPT;
  /* Runs fn.forward now and records fn.backward. Takes `fn->self` over. */
  lb_status* (*apply)(const lb_grad_fn* fn,
                      lb_tensor* const* in,
                      uint32_t n_in,
                      lb_tensor** out,
                      uint32_t n_out)LB_NOEXCEPT;
  /* d(sum outputs . grad_outputs)/d inputs without touching .grad of anything. First
   * order only. An input that no output depends on yields NULL. */
  lb_status* (*gradient)(lb_tensor* const* outputs,
                         lb_tensor* const* grad_outputs,
                         uint32_t n_out,
                         lb_tensor* const* inputs,
                         uint32_t n_in,
                         int32_t keep_graph,
                         lb_tensor** grads)LB_NOEXCEPT;
  /* Grad mode of this thread. Returns the mode before, to be set again. */
  int32_t (*set_grad_mode)(int32_t on) LB_NOEXCEPT;
  /* Data without history; the tensor must be detached. Ownership as DLPack says. */
  lb_status* (*to_dlpack)(const lb_tensor* tensor,
                          struct DLManagedTensorVersioned** out)LB_NOEXCEPT;
  lb_status* (*from_dlpack)(struct DLManagedTensorVersioned* taken, lb_tensor** out)LB_NOEXCEPT;
} lb_tensor_api;

typedef int32_t lb_arg_kind;
enum {
  LB_ARG_NONE,
  LB_ARG_TENSOR,
  LB_ARG_TENSORS,
  LB_ARG_INT,
  LB_ARG_INTS,
  LB_ARG_FLOAT,
  LB_ARG_FLOATS,
  LB_ARG_BOOL,
  LB_ARG_STRING,
  LB_ARG_DTYPE,
  LB_ARG_PLACE
};

typedef struct lb_arg {
  lb_arg_kind kind;
  uint32_t count; /* of the lists */
  union {
    int64_t i; /* also BOOL, DTYPE and PLACE */
    double f;
    const char* string;
    const int64_t* ints;
    const double* floats;
    lb_tensor* tensor;         /* lent going in; one reference coming out */
    lb_tensor* const* tensors; /* a NULL entry is an absent optional      */
  } u;
} lb_arg;

typedef struct lb_op lb_op;
typedef struct lb_dispatch_api { /* "limbeck.dispatch/1"; every function is [any] */
  uint32_t struct_size;
  uint32_t reserved;
  /* Finds a dispatcher operator ("aten::mul", "Tensor"), limbeck's fused ones
   * ("limbeck::norm_modulate", "") included. Keep the result; it lives on. */
  lb_status* (*find)(const char* name, const char* overload, const lb_op** out)LB_NOEXCEPT;
  /* Calls it, so that autograd, autocast and profiling apply. The host checks `in` against
   * the operator's schema and says which argument is wrong; missing ones take defaults. An
   * only result that is a list of tensors is spread over `out`, one entry each. */
  lb_status* (*call)(const lb_op* op, const lb_arg* in, uint32_t n_in, lb_arg* out, uint32_t n_out)
      LB_NOEXCEPT;
} lb_dispatch_api;

/* ---- Batches ------------------------------------------------------------------------ */

/* Named entries: tensors, numbers, rows of text, batches. A micro-batch, a model's inputs
 * and outputs, a cache, the facts about a model: all are this one type. Entries share
 * their tensors, so a copy is cheap. A name is [a-z0-9_.]+. */
typedef struct lb_batch lb_batch;

typedef int32_t lb_entry;
enum { LB_ENTRY_NONE, LB_ENTRY_TENSOR, LB_ENTRY_NUMBER, LB_ENTRY_TEXT, LB_ENTRY_BATCH };

typedef struct lb_batch_api { /* "limbeck.batch/1"; [any], but one batch on one thread */
  uint32_t struct_size;
  uint32_t reserved;
  lb_batch* (*create)(const lb_batch* like)LB_NOEXCEPT; /* its entries again; NULL: empty */
  void (*destroy)(lb_batch* batch) LB_NOEXCEPT;         /* NULL is fine */
  /* Lent until the entry is replaced; NULL when there is no such tensor. */
  lb_tensor* (*get)(const lb_batch* batch, const char* name)LB_NOEXCEPT;
  void (*put)(lb_batch* batch, const char* name, lb_tensor* taken) LB_NOEXCEPT;
  double (*number)(const lb_batch* batch, const char* name, double otherwise) LB_NOEXCEPT;
  void (*put_number)(lb_batch* batch, const char* name, double value) LB_NOEXCEPT;
  const char* (*text)(const lb_batch* batch, const char* name, uint32_t row)LB_NOEXCEPT;
  void (*put_text)(lb_batch* batch, const char* name, uint32_t row, const char* text) LB_NOEXCEPT;
  const lb_batch* (*batch)(const lb_batch* batch, const char* name)LB_NOEXCEPT;
  void (*put_batch)(lb_batch* batch, const char* name, lb_batch* taken) LB_NOEXCEPT;
  void (*remove)(lb_batch* batch, const char* name) LB_NOEXCEPT;
  lb_entry (*kind)(const lb_batch* batch, const char* name) LB_NOEXCEPT;
  uint32_t (*rows)(const lb_batch* batch, const char* name) LB_NOEXCEPT; /* of text */
  uint32_t (*size)(const lb_batch* batch) LB_NOEXCEPT;
  const char* (*name_at)(const lb_batch* batch, uint32_t index)LB_NOEXCEPT; /* sorted */
} lb_batch_api;

/* ---- Networks: kinds model, text-encoder, vae and reward ------------------------------
 * All four are the same thing to the host: parameters in units, and a function from batch
 * to batch. Which names that function reads and fills is fixed by the capability that the
 * component provides; the tables are in docs/abi/capabilities.md. */

typedef uint32_t lb_unit;  /* what the host shards, gathers, recomputes and offloads as one */
typedef uint32_t lb_param; /* index into lb_unit_call.params of its unit                    */
#define LB_ROOT 0u         /* of the first part: what is outside its blocks; stays gathered */
#define LB_NO_PARAM 0xffffffffu

enum {
  LB_PARAM_FROZEN = 1u << 0,     /* never gets a gradient                                  */
  LB_PARAM_BUFFER = 1u << 1,     /* state, not a weight; no optimiser sees it              */
  LB_PARAM_NO_DECAY = 1u << 2,   /* norms, biases, modulation tables                       */
  LB_PARAM_KEEP_F32 = 1u << 3,   /* excluded from the compute-dtype cast                   */
  LB_PARAM_LINEAR = 1u << 4,     /* an [out, in] matrix of a linear layer. Adapters look at
                                  * these only; a target matches the name less ".weight"   */
  LB_PARAM_VIA_LINEAR = 1u << 5, /* with LINEAR: reached through ops->linear alone. Its
                                  * params entry is NULL, so the host never has to build the
                                  * merged or dequantised matrix                           */
  LB_PARAM_OPTIONAL = 1u << 6    /* initialised by `init` when a checkpoint has no such key */
};

typedef struct lb_param_spec {
  uint32_t struct_size;
  lb_dtype dtype;
  const char* name; /* within the unit: "attn1.to_q.weight" */
  const int64_t* sizes;
  uint32_t ndim;
  uint32_t flags;
  const char* init; /* "zeros", "ones", "normal(0, 0.02)", "xavier_uniform", "kaiming_uniform" */
} lb_param_spec;

/* Lent to create(). The plugin declares; the host allocates, on the meta device first. A
 * checkpoint key is unit name, dot, parameter name; the root's unit name is empty. */
typedef struct lb_builder lb_builder;
struct lb_builder {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  lb_status* (*unit)(lb_builder* builder, const char* name, lb_unit* out)LB_NOEXCEPT;
  lb_status* (*param)(lb_builder* builder, lb_unit unit, const lb_param_spec* spec, lb_param* out)
      LB_NOEXCEPT;
  /* Begins a further network of the same role with its own root, directory and weights
   * ("transformer_2"). Units declared from here on belong to it. A part that took no part
   * in a step gets no update, no decay and no step count. */
  lb_status* (*part)(lb_builder* builder, const char* name, lb_unit* root)LB_NOEXCEPT;
  /* The path of a file beside the weights ("tokenizer/spiece.model"), or NULL. Lent. */
  const char* (*file)(lb_builder* builder, const char* name)LB_NOEXCEPT;
};

typedef int32_t lb_pattern;
enum {
  LB_ATTEND_FULL = 0,   /* each query sees every key it is given                             */
  LB_ATTEND_BLOCKS = 1, /* by frame: block b sees frames before the end of b, of these the
                         * first `sink` and as many of the last as make up `window`          */
  LB_ATTEND_TEACHER = 2 /* queries and keys are [clean | noisy]. A clean block sees clean
                         * blocks up to itself, a noisy one clean blocks before it and itself */
};

enum {
  LB_ATTEND_CROSS = 1u << 0 /* keys are context, complete on every rank and without geometry */
};

/* What one attention call means, apart from its operands. Operands are [b, tokens, heads,
 * head size]: q, k, v and, for a model built with one, the gate of video-sparse attention.
 * Geometry is that of the whole sequence, frame by frame, row by row, even where operands
 * hold one rank's share of it. With more keys than queries, queries are the last frames. */
typedef struct lb_attend {
  uint32_t struct_size;
  lb_pattern pattern;
  uint32_t flags;
  uint32_t frames; /* key frames; of one half in TEACHER; 0 if tokens have no geometry */
  uint32_t height; /* in tokens */
  uint32_t width;
  uint32_t first_block; /* frames of block 0; 0 means `block`                     */
  uint32_t block;       /* frames of the others; the last one may be short        */
  uint32_t window;      /* frames a block sees back from its end; 0 means all     */
  uint32_t sink;        /* of these, frames that are always the first of the clip */
  double scale;         /* of q.k; 0 means 1/sqrt(head size)                      */
  double sparsity;      /* the host sets it, from the schedule of the role        */
  lb_tensor* key_mask;  /* LB_MASK [b, keys], true where a key counts; NULL: all  */
} lb_attend;

typedef struct lb_ops lb_ops;
typedef struct lb_unit_call {
  uint32_t struct_size;
  int32_t again;            /* 0 in forward, 1 when the host repeats it in backward */
  lb_tensor* const* params; /* gathered, in compute dtype; valid for this call only */
  uint32_t n_params;
  uint32_t n_in;
  lb_tensor* const* in;
  lb_tensor** out; /* one reference each */
  uint32_t n_out;
  uint32_t reserved;
  void* ctx;
  const lb_ops* ops;
} lb_unit_call;

/* The two operations that the host wants to see. Using them is optional: params[i] shows
 * the merged weight unless the parameter is VIA_LINEAR. Without attend() a model has no
 * attention plugin, no masks from the host and no sequence parallelism. A body calls them
 * in the same order when it is repeated. [compute] */
struct lb_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* x . weight^T + bias. Adapters in factored form, quantised and split weights. */
  lb_status* (*linear)(const lb_unit_call* call,
                       lb_param weight,
                       lb_param bias,
                       lb_tensor* x,
                       lb_tensor** out)LB_NOEXCEPT;
  /* The role's attention plugin; sequence parallelism; results kept across `again`. */
  lb_status* (*attend)(const lb_unit_call* call,
                       const lb_attend* spec,
                       lb_tensor* const* in,
                       uint32_t n_in,
                       lb_tensor** out)LB_NOEXCEPT;
};

/* The work of one unit as a value that can be run again in backward. It must be a pure
 * function of call->in and call->params: a tensor it captured instead gets no gradient,
 * a cache is an input and its continuation an output, and nothing is written in place. It
 * draws random numbers only from libtorch's default generators, whose state the host
 * restores before it repeats the call, and it starts no other unit. */
typedef struct lb_body {
  lb_status* (*run)(void* self, const lb_unit_call* call)LB_NOEXCEPT; /* [compute] */
  void* self;
  void (*release)(void* self) LB_NOEXCEPT; /* exactly once, whatever happens [any] */
} lb_body;

/* Lent to forward(). [control] */
typedef struct lb_units lb_units;
struct lb_units {
  uint32_t struct_size;
  uint32_t flags; /* LB_RUN_ of this run                     */
  lb_dtype dtype; /* compute dtype: cast what enters a unit  */
  uint32_t reserved;
  void* ctx;
  /* Where the host gathers parameters, opens a profiler range, decides on recompute and
   * offload, calls the body, and prefetches the next unit. Takes `body->self` over. */
  lb_status* (*run)(const lb_units* units,
                    lb_unit unit,
                    const lb_body* body,
                    lb_tensor* const* in,
                    uint32_t n_in,
                    lb_tensor** out,
                    uint32_t n_out)LB_NOEXCEPT;
  /* Sequence parallelism, differentiable; without it both return their argument. split()
   * keeps this rank's range of dimension `dim`, padded with zeros to equal length: use it
   * on tokens before the first block and on everything that has a value per token, such as
   * rotary tables. join() is its inverse; `size` is the length without padding. */
  lb_status* (*split)(const lb_units* units, lb_tensor* whole, uint32_t dim, lb_tensor** out)
      LB_NOEXCEPT;
  lb_status* (*join)(const lb_units* units,
                     lb_tensor* part,
                     uint32_t dim,
                     int64_t size,
                     lb_tensor** out)LB_NOEXCEPT;
};

typedef struct lb_model_vtable { /* "limbeck.{model,text-encoder,vae,reward}/1" */
  uint32_t struct_size;
  uint32_t reserved;
  /* Declares parts, units and parameters in checkpoint order. Options that the manifest
   * leaves out already hold the values of the config.json beside the weights. [control] */
  lb_status* (*create)(lb_state* plugin, const lb_config* config, lb_builder* builder, void** out)
      LB_NOEXCEPT;
  void (*destroy)(void* self) LB_NOEXCEPT; /* [control] */
  /* Adds what others need to know (sizes, ratios, statistics) to `facts`, by the names of
   * the capability table. Before weights are loaded. [control] */
  lb_status* (*describe)(void* self, lb_batch* facts)LB_NOEXCEPT;
  /* Reads the inputs its capability names, fills `out`. Parameters are reached inside
   * units->run only. [control] */
  lb_status* (*forward)(void* self, const lb_units* units, const lb_batch* in, lb_batch* out)
      LB_NOEXCEPT;
  /* Writes this model's key for a key of a foreign checkpoint and returns its length, as
   * snprintf does; -1: not mine. [any] */
  int32_t (*rename)(void* self, const char* foreign_key, char* out, uint32_t capacity) LB_NOEXCEPT;
} lb_model_vtable;

/* ---- Attention ------------------------------------------------------------------------ */

typedef struct lb_attention_vtable { /* "limbeck.attention/1" */
  uint32_t struct_size;
  uint32_t n_saved; /* tensors that forward keeps for backward, such as a log-sum-exp */
  lb_status* (*create)(lb_state* plugin, const lb_config* config, void** out)LB_NOEXCEPT;
  void (*destroy)(void* self) LB_NOEXCEPT;
  /* 0: the host uses its own attention for this call and says so once. Looks at shapes,
   * dtypes and `spec`, never at values. [compute] */
  int32_t (*supports)(void* self, const lb_attend* spec, lb_tensor* const* in, uint32_t n_in)
      LB_NOEXCEPT;
  /* With backward: grad mode is off, fills out and saved[n_saved]. Without: builds history
   * itself, through the dispatcher or ATen, and is repeated in recompute. Operands hold the
   * whole sequence and the heads of this rank. [compute] */
  lb_status* (*forward)(void* self,
                        const lb_attend* spec,
                        lb_tensor* const* in,
                        uint32_t n_in,
                        lb_tensor** out,
                        lb_tensor** saved)LB_NOEXCEPT;
  lb_status* (*backward)(void* self,
                         const lb_attend* spec,
                         lb_tensor* const* in,
                         uint32_t n_in,
                         lb_tensor* out,
                         lb_tensor* const* saved,
                         lb_tensor* grad_out,
                         lb_tensor** grad_in)LB_NOEXCEPT; /* [compute] */
} lb_attention_vtable;

/* ---- Roles ---------------------------------------------------------------------------- */

enum {
  LB_ROLE_OPTIONAL = 1u << 0,
  LB_ROLE_TRAINED = 1u << 1, /* gets an optimiser; others are frozen and may be offloaded */
  LB_ROLE_SHADOW = 1u << 2   /* starts as a copy of role `of` unless a manifest gives it weights,
                              * moves by lb_plan.average only, is saved like a trained one    */
};
typedef struct lb_role {
  const char* name; /* "student", "teacher", "critic"; a manifest may map it to another */
  const char* doc;
  const char* capabilities; /* the role's network must provide all: "limbeck.video-dit/1
                             * limbeck.streaming/1"                                      */
  uint32_t flags;
  uint32_t of;
} lb_role;

typedef struct lb_roles {
  uint32_t stride; /* sizeof(lb_role) where the table was compiled */
  uint32_t count;  /* at most 32                                   */
  const lb_role* items;
} lb_roles;
#define LB_ROLES(array)                                                                        \
  {                                                                                            \
    LB_CAST(uint32_t, sizeof(lb_role)), LB_CAST(uint32_t, sizeof(array) / sizeof((array)[0])), \
        (array)                                                                                \
  }
#define LB_BIT(role) (1u << (role)) /* in lb_step.roles and lb_step.backward */

enum {
  LB_RUN_NO_GRAD = 1u << 0,   /* no history; dropout off                                   */
  LB_RUN_AVERAGED = 1u << 1,  /* with the role's averaged weights; implies NO_GRAD         */
  LB_RUN_BASE = 1u << 2,      /* with the adapters off; implies NO_GRAD                    */
  LB_RUN_INPUT_GRAD = 1u << 3 /* weights are constants, inputs keep their history. The only
                               * way to get history out of a frozen role                   */
};

/* The networks of this run. `role` is an index into the table of roles of the component
 * that is being called: a method's `roles`, a hook's or callback's `needs`. */
typedef struct lb_models lb_models;
struct lb_models {
  uint32_t struct_size;
  uint32_t n_roles;
  void* ctx;
  lb_status* (*run)(const lb_models* models,
                    uint32_t role,
                    uint32_t flags,
                    const lb_batch* in,
                    lb_batch* out)LB_NOEXCEPT; /* [control] */
  /* 1 if the role is filled and, unless NULL, its network provides `capability`. [any] */
  int32_t (*has)(const lb_models* models, uint32_t role, const char* capability) LB_NOEXCEPT;
  /* What describe() said; NULL for an empty role. Lent for the run. [any] */
  const lb_batch* (*facts)(const lb_models* models, uint32_t role)LB_NOEXCEPT;
};

/* ---- A step ---------------------------------------------------------------------------- */

typedef int32_t lb_reduce; /* over micro-steps and ranks */
enum { LB_MEAN, LB_SUM, LB_MAX, LB_LAST /* of rank 0 */ };

typedef struct lb_metrics lb_metrics;
struct lb_metrics { /* a name that is not reported in a step is not logged in it [control] */
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  void (*scalar)(lb_metrics* metrics, const char* name, double value, lb_reduce how) LB_NOEXCEPT;
  void (*tensor)(lb_metrics* metrics, const char* name, lb_tensor* scalar, lb_reduce how)
      LB_NOEXCEPT; /* no host sync */
  /* A file for the trackers, by the rank that has it: "video/mp4", "image/png", ... The
   * host moves it to where media of this run are kept. */
  void (*file)(lb_metrics* metrics,
               const char* name,
               const char* media_type,
               const char* path,
               const char* caption) LB_NOEXCEPT;
};

/* The training data. Batches are collated, on the device, and have been through the
 * prepare hooks. One reference each. [control] */
typedef struct lb_data lb_data;
struct lb_data {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  int64_t (*length)(const lb_data* data) LB_NOEXCEPT; /* rows in all; -1 for a stream */
  /* The next micro-batch of this rank in the sampler's order. */
  lb_status* (*next)(const lb_data* data, lb_batch** out)LB_NOEXCEPT;
  /* These rows, for methods that choose samples themselves. Not for streams. */
  lb_status* (*rows)(const lb_data* data, const int64_t* indices, uint32_t count, lb_batch** out)
      LB_NOEXCEPT;
};

typedef struct lb_step lb_step;
struct lb_step {
  uint32_t struct_size;
  uint32_t round;  /* index into what plan() made                  */
  int64_t step;    /* from 1                                       */
  uint32_t micro;  /* index of the micro-step, from 0              */
  uint32_t micros; /* micro-steps of this round                    */
  uint32_t roles;  /* bit r: this round updates role r; 0 in hooks */
  uint32_t nth;    /* in prepare(): which batch of this micro-step, from 0 */
  void* ctx;
  const lb_models* models;
  const lb_data* data;   /* NULL in hooks */
  const lb_batch* batch; /* NULL in a round with LB_ROUND_OWN_DATA, and in start() */
  const lb_batch* facts; /* numbers of the manifest: "pipeline.flow_shift", "data.height" */
  lb_metrics* metrics;
  /* Differentiates now, with respect to the roles of `bits` (LB_BIT(critic); 0: all that
   * this round updates) and nothing else, adds to their gradients, frees the graph. The host
   * divides by `micros`, so the gradient of a round is the mean over micro-steps and ranks.
   * A role in `bits` that the round does not update, or that `loss` gives no gradient, is an
   * error. Any number of times per micro-step, on disjoint graphs. NULL in hooks. [control] */
  lb_status* (*backward)(const lb_step* step, uint32_t bits, lb_tensor* loss)LB_NOEXCEPT;
  /* The weighted sum of the manifest's [[losses]] for `role`, each given `values`; NULL in
   * `out` if there are none. NULL in hooks. [control] */
  lb_status* (*terms)(const lb_step* step, uint32_t role, const lb_batch* values, lb_tensor** out)
      LB_NOEXCEPT;
};

/* ---- Method ------------------------------------------------------------------------- */

enum {
  LB_ROUND_OWN_DATA = 1u << 0, /* draw no batch: the method asks lb_step.data, or nobody   */
  LB_ROUND_SAME_DATA = 1u << 1 /* the batches of the round before, prepared anew           */
};

/* Lent to plan(). A step is a sequence of rounds. A round is `micro_steps` calls of loss(),
 * then one optimiser update of each of its roles, then its averages. */
typedef struct lb_plan lb_plan;
struct lb_plan {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  /* micro_steps 0: gradient_accumulation_steps of the manifest. */
  lb_status* (*round)(lb_plan* plan, uint32_t micro_steps, uint32_t flags)LB_NOEXCEPT;
  lb_status* (*update)(lb_plan* plan, uint32_t role)LB_NOEXCEPT; /* in the last round made */
  /* shadow = decay * shadow + (1 - decay) * role `of`, in fp32, after the updates. */
  lb_status* (*average)(lb_plan* plan, uint32_t shadow, double decay)LB_NOEXCEPT;
};

typedef struct lb_writer lb_writer;
typedef struct lb_reader lb_reader;

typedef struct lb_method_vtable { /* "limbeck.method/1" */
  uint32_t struct_size;
  uint32_t reserved;
  lb_roles roles;
  const char* const* reads; /* entries of a micro-batch it uses, NULL-terminated; a trailing
                             * "?" marks one that may be missing. NULL: not declared         */
  lb_status* (*create)(lb_state* plugin, const lb_config* config, void** out)LB_NOEXCEPT;
  void (*destroy)(void* self) LB_NOEXCEPT;
  /* Once per process, when networks are loaded and load() was called, before plan() and the
   * first step: check facts, encode a prompt. NULL: nothing to do. [control] */
  lb_status* (*start)(void* self, const lb_step* step)LB_NOEXCEPT;
  /* The rounds of a step, a pure function of options, facts and `step`: the host also asks
   * ahead, for learning-rate horizons. NULL: one round that updates every trained role. [any] */
  lb_status* (*plan)(void* self, int64_t step, lb_plan* plan)LB_NOEXCEPT;
  /* One micro-step. A loss left in `out` is backward(step, 0, loss), called last; a method
   * that called backward itself leaves NULL there. [control] */
  lb_status* (*loss)(void* self, const lb_step* step, lb_tensor** out)LB_NOEXCEPT;
  /* Between steps. LB_UNAVAILABLE, on every rank: not now, ask after the next step. */
  lb_status* (*save)(void* self, lb_writer* writer)LB_NOEXCEPT; /* NULL: stateless */
  lb_status* (*load)(void* self, const lb_reader* reader)LB_NOEXCEPT;
} lb_method_vtable;

/* ---- Hooks -------------------------------------------------------------------------- */

/* A hook runs networks through step->models, by its own `needs`; a role that only hooks
 * need is loaded as frozen. It never calls backward and keeps no tensor with history. */

typedef struct lb_prepare_vtable { /* "limbeck.prepare/1": sample -> what the method reads */
  uint32_t struct_size;
  uint32_t reserved;
  lb_roles needs;
  const char* const* reads;  /* as in lb_method_vtable */
  const char* const* writes; /* entries it adds; NULL: not declared */
  lb_status* (*create)(lb_state* plugin, const lb_config* config, void** out)LB_NOEXCEPT;
  void (*destroy)(void* self) LB_NOEXCEPT;
  /* Changes `batch`, which step->batch shows as well. Grad mode off. [control] */
  lb_status* (*prepare)(void* self, const lb_step* step, lb_batch* batch)LB_NOEXCEPT;
  lb_status* (*save)(void* self, lb_writer* writer)LB_NOEXCEPT;
  lb_status* (*load)(void* self, const lb_reader* reader)LB_NOEXCEPT;
} lb_prepare_vtable;

typedef struct lb_loss_vtable { /* "limbeck.loss/1": one term of a sum */
  uint32_t struct_size;
  uint32_t reserved;
  lb_roles needs;
  const char* const* reads; /* of `values` */
  lb_status* (*create)(lb_state* plugin, const lb_config* config, void** out)LB_NOEXCEPT;
  void (*destroy)(void* self) LB_NOEXCEPT;
  /* A scalar with history. `values` is what the method passed to terms(): the micro-batch
   * with "prediction", "target", ... added. [control] */
  lb_status* (*loss)(void* self, const lb_step* step, const lb_batch* values, lb_tensor** out)
      LB_NOEXCEPT;
  lb_status* (*save)(void* self, lb_writer* writer)LB_NOEXCEPT;
  lb_status* (*load)(void* self, const lb_reader* reader)LB_NOEXCEPT;
} lb_loss_vtable;

/* ---- Callbacks ------------------------------------------------------------------------ */

typedef uint32_t lb_event_kind;
enum {
  LB_ON_START, /* before the first step, after load()                                  */
  LB_ON_STEP_BEGIN,
  LB_ON_ROUND,    /* after the updates of a round                                         */
  LB_ON_STEP,     /* after a step; `values` holds its metrics                             */
  LB_ON_VALIDATE, /* every `every_steps` of the callback's table, or by request           */
  LB_ON_SAVE,     /* before a checkpoint; LB_UNAVAILABLE puts it off by one step          */
  LB_ON_SAVED,    /* after it is complete on disk; `text` is its path                     */
  LB_ON_ERROR,    /* `text` is the message; no models, no collectives                     */
  LB_ON_END
};

enum { LB_WANT_SAVE = 1u << 0, LB_WANT_VALIDATION = 1u << 1, LB_WANT_STOP = 1u << 2 };

typedef struct lb_event lb_event;
struct lb_event {
  uint32_t struct_size;
  lb_event_kind kind;
  int64_t step;
  int64_t max_steps;
  void* ctx;
  const lb_models* models; /* NULL in LB_ON_ERROR */
  const lb_data* data;     /* of the callback's own `data` table, else the training set, of
                            * which a callback takes rows() only; NULL in LB_ON_ERROR      */
  const lb_batch* facts;   /* as in lb_step */
  const lb_batch* values;  /* numbers, reduced over ranks; NULL where there are none */
  lb_metrics* metrics;
  const char* text;
  /* LB_WANT_ bits, granted at the end of this step if any rank asked. [control] */
  void (*request)(const lb_event* event, uint32_t what) LB_NOEXCEPT;
};

typedef struct lb_callback_vtable { /* "limbeck.callback/1" */
  uint32_t struct_size;
  uint32_t reserved;
  lb_roles needs;
  uint64_t events; /* bit k: wants kind k. A host never sends a kind unasked. */
  lb_status* (*create)(lb_state* plugin, const lb_config* config, void** out)LB_NOEXCEPT;
  void (*destroy)(void* self) LB_NOEXCEPT;
  lb_status* (*event)(void* self, const lb_event* event)LB_NOEXCEPT; /* every rank [control] */
  lb_status* (*save)(void* self, lb_writer* writer)LB_NOEXCEPT;
  lb_status* (*load)(void* self, const lb_reader* reader)LB_NOEXCEPT;
  /* Entries of lb_event.data that it uses, as in lb_method_vtable; a data set need not read
   * what nobody names. NULL: none. */
  const char* const* reads;
} lb_callback_vtable;

/* ---- Data sets and trackers ------------------------------------------------------------- */

enum {
  LB_FIELD_OPTIONAL = 1u << 0, /* not in every sample */
  LB_FIELD_TEXT = 1u << 1      /* one row of text; dtype, ndim and sizes are unused */
};
typedef struct lb_field {
  const char* name;
  const int64_t* sizes; /* of one sample. -1: varies; the host then pads with zeros to the
                         * fact "<name>.tokens" of role 0, else to the longest of the batch,
                         * and adds "<name>_mask"                                            */
  lb_dtype dtype;
  uint32_t ndim;
  uint32_t flags;
  uint32_t reserved;
} lb_field;

typedef struct lb_fields {
  uint32_t stride; /* sizeof(lb_field) where the table was compiled */
  uint32_t count;
  const lb_field* items;
} lb_fields;

enum {
  LB_SOURCE_SKIPS = 1u << 0 /* samples that cannot be read are skipped: an odd one is no reason
                             * not to open the set */
};
typedef struct lb_source {
  uint32_t struct_size;
  uint32_t worker, workers; /* this instance among those of the rank           */
  uint32_t rank, world;     /* data-parallel, for streams that split themselves */
  uint32_t flags;
  uint64_t seed;
  const char* const* wanted; /* entries that somebody reads, NULL-terminated; NULL: all */
} lb_source;

/* Samples that the host mixes with those of other sources. */
typedef struct lb_mix_source {
  const char* name; /* for messages: a path */
  int64_t end;      /* its samples begin where those of the source before end, and end here */
  double weight;    /* >= 0: its share of every epoch, relative to the other weights        */
} lb_mix_source;

typedef struct lb_mix {
  uint32_t stride; /* sizeof(lb_mix_source) where the table was compiled */
  uint32_t count;
  const lb_mix_source* items;
} lb_mix;

/* Samples by index. The host owns order, shuffling, epochs, mixing, sharding, collation
 * and the position in a checkpoint, and adds "row", the global index; a data set reads. */
typedef struct lb_dataset_vtable { /* "limbeck.dataset/1" */
  uint32_t struct_size;
  uint32_t reserved;
  lb_status* (*open)(lb_state* plugin, const lb_config* config, const lb_source* source, void** out)
      LB_NOEXCEPT; /* may read footers [worker] */
  void (*close)(void* self) LB_NOEXCEPT;
  int64_t (*length)(void* self) LB_NOEXCEPT; /* samples in the whole set; -1: a stream */
  /* What a sample has. Lives as long as the instance. [worker] */
  lb_status* (*fields)(void* self, lb_fields* out)LB_NOEXCEPT;
  /* One sample on the CPU into an empty batch. A stream is called with 0, 1, 2, ... per
   * instance and ends with LB_OUT_OF_RANGE. [worker] */
  lb_status* (*read)(void* self, int64_t index, lb_batch* sample)LB_NOEXCEPT;
  /* Where runs of samples end that are cheap to read together, such as row groups:
   * ascending, the last one is length(). The host shuffles runs, then samples within a
   * window of runs. NULL: every sample is a run of its own. [worker] */
  lb_status* (*runs)(void* self, const int64_t** ends, uint64_t* count)LB_NOEXCEPT;
  /* Samples of one run, into empty batches. NULL: the host calls read(). [worker] */
  lb_status* (*read_many)(void* self,
                          const int64_t* indices,
                          uint32_t count,
                          lb_batch* const* samples)LB_NOEXCEPT;
  /* Streams that cannot seek: their position, per instance. NULL: read(k) seeks. */
  lb_status* (*save)(void* self, lb_writer* writer)LB_NOEXCEPT;
  lb_status* (*load)(void* self, const lb_reader* reader)LB_NOEXCEPT;
  /* How many runs it keeps in memory, so that it reads none of them twice: the host shuffles
   * no more of them together. 0, or NULL: it does not matter. [worker] */
  int64_t (*kept_runs)(void* self) LB_NOEXCEPT;
  /* What to mix by weight; ends of sources are ends of runs too, and the last one is
   * length(). NULL or none: every sample once an epoch. Lives as long as the instance. */
  lb_status* (*mix)(void* self, lb_mix* out)LB_NOEXCEPT;
  /* A hash of what the samples are made from, such as names and sizes of files, so that a
   * checkpoint notices another data set. NULL: the host has length and runs only. [worker] */
  uint64_t (*fingerprint)(void* self) LB_NOEXCEPT;
  /* Facts for people: "files", "bytes", "compression", ... NULL: none. [worker] */
  lb_status* (*describe)(void* self, lb_batch* facts)LB_NOEXCEPT;
} lb_dataset_vtable;

typedef struct lb_tracked_run {
  uint32_t struct_size;
  uint32_t reserved;
  const char* id; /* random, kept across resumes */
  const char* name;
  const char* directory; /* of the run, exists        */
  const char* manifest;  /* resolved, TOML */
  int64_t first_step;    /* 1, or the one after the checkpoint that was resumed */
} lb_tracked_run;

/* On rank 0 only. Each tracker has a thread of its own, on which all its functions are called, and
 * none can stop a run. LB_UNAVAILABLE says that nothing can be kept at the moment: the call is
 * repeated later, before any other. What is refused otherwise is lost. */
typedef struct lb_tracker_vtable { /* "limbeck.tracker/1" [worker] */
  uint32_t struct_size;
  uint32_t reserved;
  lb_status* (*open)(lb_state* plugin,
                     const lb_config* config,
                     const lb_tracked_run* run,
                     void** out)LB_NOEXCEPT;
  lb_status* (*scalars)(void* self,
                        int64_t step,
                        const char* const* names,
                        const double* values,
                        uint32_t count)LB_NOEXCEPT;
  lb_status* (*file)(void* self,
                     int64_t step,
                     const char* name,
                     const char* media_type,
                     const char* path,
                     const char* caption)LB_NOEXCEPT;
  void (*close)(void* self, int32_t succeeded) LB_NOEXCEPT;
} lb_tracker_vtable;

/* ---- Random numbers and groups ----------------------------------------------------------- */

typedef int32_t lb_stream;
enum {
  LB_CONTROL = 0, /* equal on every rank: exit steps, lengths, experts                   */
  LB_NOISE = 1    /* row i of dimension 0 is keyed by the place of sample i in the step's global
                   * batch: other numbers for other samples, the same for a sample however
                   * ranks and micro-steps share the batch                               */
};

/* Names a draw. The same key gives the same numbers on the same kind of device: nothing is
 * consumed and nothing has to be saved. Give each draw of a micro-step its own purpose, or
 * its own index in a loop; a prepare hook counts step->nth in. */
typedef struct lb_key {
  uint32_t struct_size;
  lb_stream stream;
  const char* purpose; /* "exit", "renoise", "score.timestep" */
  int64_t step;
  uint32_t micro;
  uint32_t index;
} lb_key;

typedef struct lb_random_api { /* "limbeck.random/1"; every function is [any] */
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t (*seed)(const lb_key* key) LB_NOEXCEPT;
  lb_status* (*normal)(const lb_key* key, const int64_t* sizes, uint32_t ndim, lb_tensor** out)
      LB_NOEXCEPT; /* f32, on the run's device */
  lb_status* (*uniform)(const lb_key* key, const int64_t* sizes, uint32_t ndim, lb_tensor** out)
      LB_NOEXCEPT; /* [0, 1) */
  /* `count` integers of [low, high), or a permutation of 0 ... count - 1, on the host. */
  lb_status* (*integers)(const lb_key* key, int64_t low, int64_t high, int64_t* out, uint32_t count)
      LB_NOEXCEPT;
  lb_status* (*permutation)(const lb_key* key, int64_t* out, uint32_t count)LB_NOEXCEPT;
} lb_random_api;

typedef int32_t lb_group;
enum {
  LB_WORLD = 0,
  LB_DATA = 1,    /* one rank of each sequence-parallel group: those with other samples */
  LB_SEQUENCE = 2 /* the ranks that share this rank's samples                           */
};

/* Collectives on values, without history. Every rank of the group calls. [control] */
typedef struct lb_group_api { /* "limbeck.group/1" */
  uint32_t struct_size;
  uint32_t reserved;
  uint32_t (*rank)(lb_group group) LB_NOEXCEPT;
  uint32_t (*size)(lb_group group) LB_NOEXCEPT;
  /* Tensors joined along dimension 0 and rows of text appended, in rank order. */
  lb_status* (*all_gather)(lb_group group, const lb_batch* mine, lb_batch** out)LB_NOEXCEPT;
  lb_status* (*all_reduce)(lb_group group, lb_reduce how, const lb_tensor* mine, lb_tensor** out)
      LB_NOEXCEPT;
  /* `mine` counts on the root only and may be NULL elsewhere. */
  lb_status* (*broadcast)(lb_group group, uint32_t root, const lb_batch* mine, lb_batch** out)
      LB_NOEXCEPT;
  lb_status* (*barrier)(lb_group group)LB_NOEXCEPT;
} lb_group_api;

/* ---- State -------------------------------------------------------------------------- */

typedef int32_t lb_spread;
enum {
  LB_SAME = 0, /* equal on every rank; rank 0's copy is kept   */
  LB_RANK = 1  /* every rank's own; needs the same world size  */
};

/* Names are [a-z0-9_.]+ and unique within a component. Tensors are lent and copied before
 * return. save() and load() are collective and run between steps. [control] */
struct lb_writer {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  lb_status* (*tensor)(lb_writer* w, const char* name, const lb_tensor* lent, lb_spread spread)
      LB_NOEXCEPT;
  lb_status* (*integer)(lb_writer* w, const char* name, int64_t value)LB_NOEXCEPT;
  lb_status* (*number)(lb_writer* w, const char* name, double value)LB_NOEXCEPT;
  lb_status* (*bytes)(
      lb_writer* w, const char* name, const void* data, uint64_t size, lb_spread spread)LB_NOEXCEPT;
  lb_status* (*batch)(lb_writer* w, const char* name, const lb_batch* lent, lb_spread spread)
      LB_NOEXCEPT; /* all entries, nested ones too */
};
struct lb_reader {
  uint32_t struct_size;
  uint32_t state_version; /* the component's, when the state was saved */
  void* ctx;
  lb_status* (*tensor)(const lb_reader* r, const char* name, lb_tensor** out)LB_NOEXCEPT;
  lb_status* (*integer)(const lb_reader* r, const char* name, int64_t* out)LB_NOEXCEPT;
  lb_status* (*number)(const lb_reader* r, const char* name, double* out)LB_NOEXCEPT;
  lb_status* (*bytes)(const lb_reader* r, const char* name, const void** data, uint64_t* size)
      LB_NOEXCEPT; /* lent: as long as the reader */
  lb_status* (*batch)(const lb_reader* r, const char* name, lb_batch** out)LB_NOEXCEPT;
};

#ifdef __cplusplus
}
#endif
#endif /* LIMBECK_ABI_H */
