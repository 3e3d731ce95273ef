// SPDX-License-Identifier: Apache-2.0
// A callback: it is told what happens between steps. A manifest uses it like this:
//
//   [callbacks.my_plugin]
//   limit = 10.0
#include <limbeck/plugin.hpp>

namespace {

// Ends a run whose loss has gone astray: training is stopped, and saved as at any other end.
class MyCallback : public lb::Callback {
 public:
  struct Options {
    double limit = 10.0;

    template <class V>
    void visit(V& v) {
      v("limit", limit, "Loss above which the run is stopped.", "(0, inf)");
    }
  };
  static constexpr uint64_t events = LB_BIT(LB_ON_STEP);

  explicit MyCallback(const Options& options) : limit_(options.limit) {}

  void event(const lb::Event& event) override {
    const double loss = event.values().number("loss", 0.0);
    highest_ = loss > highest_ ? loss : highest_;
    event.log("my_plugin/highest_loss", highest_);
    if (loss > limit_) {
      lb::log(LB_WARN, "my_plugin", "the loss is " + std::to_string(loss) + ": stopping");
      event.request(LB_WANT_STOP);
    }
  }

  // What must survive between a checkpoint and the run that goes on from it.
  void save(lb::Writer& state) override { state.number("highest", highest_); }
  void load(const lb::Reader& state) override { highest_ = state.number("highest"); }

 private:
  double limit_;
  double highest_ = 0;
};

}  // namespace

LB_PLUGIN(lb::callback<MyCallback>("my_plugin", "Stops a run whose loss is too high."))
