// SPDX-License-Identifier: Apache-2.0
// How classes of the SDK become components: their tables, which optional functions they fill, and
// what happens to exceptions.
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/plugin.hpp>

#include "core/base/error.hpp"
#include "core/manifest/config.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/status.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/tensor_api.hpp"

#include <doctest/doctest.h>

namespace {

void bind_services() {
  limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
  limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
  limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
  REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
}

struct EveryOption {
  double rate = 0.25;
  int64_t count = 3;
  bool is_on = true;
  std::string word = "say \"hi\"";
  std::string scheme = "uniform";
  std::string file;
  int64_t width = 0;
  std::vector<int64_t> sizes = {1, 2};
  std::vector<double> betas = {0.9, 1};
  std::vector<std::string> names = {"a"};
  bool is_rate_given = false;

  template <class V>
  void visit(V& v) {
    v("rate", rate, "A rate.", "[0, 1]").on_resume();
    v("count", count, "A count.", "[1, inf)").alias("models.critic.optimizer.learning_rate");
    v("is_on", is_on, "A switch.");
    v("word", word, "A word.").secret();
    v.choice("scheme", scheme, "A scheme.", {"uniform", "logit_normal"});
    v.path("file", file, "A file.");
    v.required("width", width, "A width.", "[1, inf)");
    v("sizes", sizes, "Sizes.");
    v("betas", betas, "Betas.");
    v("names", names, "Names.");
    v.given("rate", is_rate_given);
  }
};

class Small : public lb::Method {
 public:
  using Options = EveryOption;
  static constexpr lb_role roles[] = {
      {"student", "Learns.", "limbeck.video-dit/1", lb::kTrained, 0},
      {"teacher", "Knows.", "", lb::kOptional, 0}};
  static constexpr const char* reads[] = {"x", "y?"};
  static constexpr const char* provides[] = {"limbeck.terms/1", nullptr};

  explicit Small(const Options& options) : options_(options) {}

  lb::Tensor loss(const lb::Step& step) override { return step.batch()["x"].sum() * 2; }

  Options options_;
};

class Full : public Small {
 public:
  static constexpr uint32_t state_version = 2;

  using Small::Small;
  void plan(int64_t step, lb::Plan& plan) override { plan.round(step == 1 ? 3 : 0).update(0); }
  void start(const lb::Step&) override { throw lb::Error(LB_INVALID_ARGUMENT, "not like this"); }
  void save(lb::Writer& writer) override { writer.integer("n", 5); }
  void load(const lb::Reader& reader) override { count_ = reader.integer("n"); }
  int64_t count_ = 0;
};

class Sampler : public lb::Callback {
 public:
  static constexpr uint64_t events = LB_BIT(LB_ON_VALIDATE) | LB_BIT(LB_ON_END);
  static constexpr const char* provides[] = {"limbeck.sample/1"};

  void event(const lb::Event&) override {}
  void sample(const lb::Event&, const lb::Batch& prompts) { seen_ = prompts.text("prompt"); }
  std::string seen_;
};

class Numbers : public lb::Dataset {
 public:
  explicit Numbers(const lb_source& source) : wants_x_(lb::is_wanted(source, "x")) {}
  int64_t length() override { return 7; }
  std::vector<lb::Field> fields() override {
    return {{"x", {2, -1}, LB_F32}, lb::Field::text("caption", LB_FIELD_OPTIONAL)};
  }
  void read(int64_t index, lb::Batch& sample) override {
    if (wants_x_) {
      sample.set("x", lb::full({2, 1}, index, LB_F32, LB_CPU));
    }
    sample.set("caption", std::to_string(index));
  }
  std::vector<int64_t> runs() override { return {4, 7}; }

 private:
  bool wants_x_;
};

template <class Vtable>
const Vtable& vtable_of(const lb_component* component) {
  return *static_cast<const Vtable*>(component->vtable);
}

const lb_option& option_of(const lb_component* component, const char* name) {
  for (uint32_t i = 0; i < component->options.count; ++i) {
    if (std::strcmp(component->options.items[i].name, name) == 0) {
      return component->options.items[i];
    }
  }
  throw std::runtime_error(name);
}

lb_config config_of_every_option() {
  using limbeck::ConfigValue;
  lb_config config;
  const auto value = [](auto item, bool is_given = false) {
    return ConfigValue{std::move(item), is_given, {}};
  };
  config.table = {{"rate", value(0.5, true)},
                  {"count", value(int64_t{9})},
                  {"is_on", value(false)},
                  {"word", value(std::string("w"))},
                  {"scheme", value(std::string("logit_normal"))},
                  {"file", value(std::string("/tmp/f"))},
                  {"width", value(int64_t{64}, true)},
                  {"sizes", value(ConfigValue::List{value(int64_t{4}), value(int64_t{5})})},
                  {"betas", value(ConfigValue::List{value(0.5)})},
                  {"names", value(ConfigValue::List{value(std::string("b"))})}};
  return config;
}

// A step with a batch that has x = [1, 2].
struct FakeStep {
  lb_batch batch;
  lb_step table{};

  FakeStep() {
    batch.put("x", at::tensor({1.0F, 2.0F}));
    table.struct_size = sizeof(table);
    table.step = 1;
    table.batch = &batch;
  }
};

std::string message_of(lb_status* status) {
  REQUIRE(status != nullptr);
  std::string text = status->message;
  for (const auto& frame : status->frames) {
    text += " | " + frame;
  }
  limbeck::drop_status(status);
  return text;
}

}  // namespace

TEST_CASE("a table of options says type, default, range and choices") {
  const auto* component = lb::method<Small>("small", "A method.");
  CHECK(component->kind == std::string("limbeck.method/1"));
  CHECK(component->options.stride == sizeof(lb_option));
  CHECK(component->options.count == 10);
  const auto& rate = option_of(component, "rate");
  CHECK(rate.type == LB_FLOAT);
  CHECK(rate.fallback == std::string("0.25"));
  CHECK(rate.range == std::string("[0, 1]"));
  CHECK(rate.flags == LB_OPT_ON_RESUME);
  const auto& count = option_of(component, "count");
  CHECK(count.type == LB_INT);
  CHECK(count.fallback == std::string("3"));
  CHECK(count.alias == std::string("models.critic.optimizer.learning_rate"));
  CHECK(option_of(component, "is_on").fallback == std::string("true"));
  CHECK(option_of(component, "word").fallback == std::string(R"("say \"hi\"")"));
  CHECK(option_of(component, "word").flags == LB_OPT_SECRET);
  const auto& scheme = option_of(component, "scheme");
  CHECK(scheme.type == LB_ENUM);
  CHECK(scheme.choices[1] == std::string("logit_normal"));
  CHECK(scheme.choices[2] == nullptr);
  CHECK(option_of(component, "file").type == LB_PATH);
  CHECK(option_of(component, "width").fallback == nullptr);
  const auto& betas = option_of(component, "betas");
  CHECK(betas.fallback == std::string("[0.9, 1.0]"));
  CHECK(betas.flags == LB_OPT_LIST);
  CHECK(option_of(component, "names").fallback == std::string(R"(["a"])"));
}

TEST_CASE("an instance reads its options") {
  bind_services();
  const auto& vtable = vtable_of<lb_method_vtable>(lb::method<Small>("small", ""));
  const auto config = config_of_every_option();
  void* self = nullptr;
  REQUIRE(vtable.create(nullptr, &config, &self) == nullptr);
  const auto& options = static_cast<Small*>(self)->options_;
  CHECK(options.rate == 0.5);
  CHECK(options.is_rate_given);
  CHECK(options.count == 9);
  CHECK_FALSE(options.is_on);
  CHECK(options.scheme == "logit_normal");
  CHECK(options.file == "/tmp/f");
  CHECK(options.width == 64);
  CHECK(options.sizes == std::vector<int64_t>{4, 5});
  CHECK(options.betas == std::vector<double>{0.5});
  CHECK(options.names == std::vector<std::string>{"b"});
  vtable.destroy(self);
}

TEST_CASE("only what a class overrides is in its vtable") {
  const auto* plain = lb::method<Small>("small", "");
  const auto& small = vtable_of<lb_method_vtable>(plain);
  CHECK(small.roles.count == 2);
  CHECK(small.reads[1] == std::string("y?"));
  CHECK(small.reads[2] == nullptr);
  CHECK(plain->provides[0] == std::string("limbeck.terms/1"));
  CHECK(plain->provides[1] == nullptr);
  CHECK(plain->state_version == 0);
  CHECK((small.plan == nullptr));
  CHECK((small.start == nullptr));
  CHECK((small.save == nullptr));
  CHECK((small.load == nullptr));
  const auto* other = lb::method<Full>("full", "");
  const auto& full = vtable_of<lb_method_vtable>(other);
  CHECK(other->state_version == 2);
  CHECK((full.plan != nullptr));
  CHECK((full.start != nullptr));
  CHECK((full.save != nullptr));
  CHECK((full.load != nullptr));
}

TEST_CASE("a loss crosses the boundary, and so do errors with who threw them") {
  bind_services();
  const auto& vtable = vtable_of<lb_method_vtable>(lb::method<Full>("full", ""));
  const auto config = config_of_every_option();
  void* self = nullptr;
  REQUIRE(vtable.create(nullptr, &config, &self) == nullptr);
  FakeStep step;
  lb_tensor* out = nullptr;
  REQUIRE(vtable.loss(self, &step.table, &out) == nullptr);
  CHECK(lb::Tensor::take(out).item() == 6.0);

  step.batch.entries.clear();
  out = nullptr;
  auto* status = vtable.loss(self, &step.table, &out);
  CHECK(out == nullptr);
  REQUIRE(status != nullptr);
  CHECK(status->code == LB_NOT_FOUND);
  const auto missing = message_of(status);
  CHECK(missing.find("no tensor 'x'") != std::string::npos);
  CHECK(missing.find("while 'full' ran loss()") != std::string::npos);

  status = vtable.start(self, &step.table);
  REQUIRE(status != nullptr);
  CHECK(status->code == LB_INVALID_ARGUMENT);
  CHECK(message_of(status).find("not like this") != std::string::npos);
  vtable.destroy(self);
}

TEST_CASE("whatever is thrown becomes a status of the right code") {
  bind_services();
  const auto code_of = [](auto body) {
    auto* status = lb::guard("test()", nullptr, body);
    const auto code = status == nullptr ? LB_OK : status->code;
    limbeck::drop_status(status);
    return code;
  };
  CHECK(code_of([] {}) == LB_OK);
  CHECK(code_of([] { throw lb::Error(LB_DATA_LOSS, "x"); }) == LB_DATA_LOSS);
  CHECK(code_of([] { throw std::bad_alloc(); }) == LB_HOST_OOM);
  CHECK(code_of([] { throw std::runtime_error("x"); }) == LB_INTERNAL);
  CHECK(code_of([] { throw 3; }) == LB_UNKNOWN);
  CHECK(code_of([] { lb::check(limbeck::make_status(LB_UNAVAILABLE, "later")); }) ==
        LB_UNAVAILABLE);
  // One that is caught on the way drops its status.
  CHECK(code_of([] {
          try {
            lb::check(limbeck::make_status(LB_UNAVAILABLE, "later"));
          } catch (const lb::Error& error) {
            CHECK(error.code == LB_UNAVAILABLE);
            CHECK(error.what() == std::string("later"));
          }
        }) == LB_OK);
}

TEST_CASE("a callback that can sample says so") {
  bind_services();
  const auto* component = lb::callback<Sampler>("sampler", "");
  const auto& vtable = vtable_of<lb_callback_vtable>(component);
  CHECK(vtable.events == (LB_BIT(LB_ON_VALIDATE) | LB_BIT(LB_ON_END)));
  CHECK(vtable.needs.count == 0);
  REQUIRE((component->get_extension != nullptr));
  CHECK(component->get_extension("something.else/1") == nullptr);
  const auto* sample =
      static_cast<const lb_sample_vtable*>(component->get_extension("limbeck.sample/1"));
  REQUIRE(sample != nullptr);
  void* self = nullptr;
  REQUIRE(vtable.create(nullptr, nullptr, &self) == nullptr);
  lb_event event{};
  event.struct_size = sizeof(event);
  lb_batch prompts;
  prompts.put("prompt", limbeck::TextRows{"a digit"});
  CHECK(sample->sample(self, &event, &prompts) == nullptr);
  CHECK(static_cast<Sampler*>(self)->seen_ == "a digit");
  vtable.destroy(self);
}

TEST_CASE("a data set shows its fields and runs and fills samples") {
  bind_services();
  const auto& vtable = vtable_of<lb_dataset_vtable>(lb::dataset<Numbers>("numbers", ""));
  CHECK((vtable.read_many == nullptr));
  CHECK((vtable.save == nullptr));
  lb_source source{};
  source.struct_size = sizeof(source);
  const char* const wanted[] = {"caption", nullptr};
  for (const bool wants_all : {true, false}) {
    source.wanted = wants_all ? nullptr : wanted;
    void* self = nullptr;
    REQUIRE(vtable.open(nullptr, nullptr, &source, &self) == nullptr);
    CHECK(vtable.length(self) == 7);
    lb_fields fields{};
    REQUIRE(vtable.fields(self, &fields) == nullptr);
    REQUIRE(fields.count == 2);
    CHECK(fields.items[0].name == std::string("x"));
    CHECK(fields.items[0].ndim == 2);
    CHECK(fields.items[0].sizes[1] == -1);
    CHECK(fields.items[1].flags == (LB_FIELD_TEXT | LB_FIELD_OPTIONAL));
    const int64_t* ends = nullptr;
    uint64_t count = 0;
    REQUIRE(vtable.runs(self, &ends, &count) == nullptr);
    CHECK(std::vector<int64_t>(ends, ends + count) == std::vector<int64_t>{4, 7});
    lb_batch sample;
    REQUIRE(vtable.read(self, 3, &sample) == nullptr);
    CHECK(sample.find<limbeck::TextRows>("caption")->at(0) == "3");
    CHECK((sample.find<at::Tensor>("x") != nullptr) == wants_all);
    vtable.close(self);
  }
}
