// C++17 over weft_loader.h: objects that own files, code and memory, arrays with their types, exceptions.
//
//   weft::program net("net.weft");
//   weft::call call(net, {batch});                  // a value for each symbolic size
//   std::vector<float> y(call.output_size(0));
//   call.run({x}, {y});
//
// Programs may be shared by threads; each thread makes its own calls. Copies share what they own.
#ifndef WEFT_HPP
#define WEFT_HPP

#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft_loader.h"

namespace weft {

class error : public std::runtime_error {
 public:
  error(weft_code code, const std::string &message) : std::runtime_error(message), code_(code) {}
  explicit error(const weft_error &from) : error(from.code, from.message) {}
  weft_code code() const noexcept { return code_; }

 private:
  weft_code code_;
};

inline void check(weft_code code, const weft_error &why) {
  if (code != WEFT_OK) throw error(why);
}

// Memory at a multiple of 64.
class memory {
 public:
  explicit memory(std::size_t bytes)
      : data_(::operator new(bytes ? bytes : 1, std::align_val_t(64))), bytes_(bytes) {}
  void *data() const noexcept { return data_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct release {
    void operator()(void *data) const noexcept { ::operator delete(data, std::align_val_t(64)); }
  };
  std::unique_ptr<void, release> data_;
  std::size_t bytes_;
};

// Whether elements of a C++ type are those of a dtype. float16 and bfloat16 are uint16_t, bool is
// uint8_t or bool.
template <class T>
bool is_dtype(const std::string &dtype) {
  if (dtype == "float32") return std::is_same_v<T, float>;
  if (dtype == "float64") return std::is_same_v<T, double>;
  if (dtype == "float16" || dtype == "bfloat16") return std::is_same_v<T, std::uint16_t>;
  if (dtype == "bool") return std::is_same_v<T, bool> || std::is_same_v<T, std::uint8_t>;
  if (!std::is_integral_v<T>) return sizeof(T) == 1 || dtype.compare(0, 7, "complex") == 0;
  return dtype == (std::is_signed_v<T> ? "int" : "uint") + std::to_string(8 * sizeof(T));
}

// A view of an array of the caller: a vector, a std::array, a pointer with a number of elements.
template <bool is_const>
class basic_view {
 public:
  template <class T>
  basic_view(T *data, std::size_t count)
      : data_(data), bytes_(count * sizeof(T)), is_(&is_dtype<std::remove_const_t<T>>) {}
  template <class C, class T = std::remove_pointer_t<decltype(std::declval<C &>().data())>,
            class = std::enable_if_t<is_const || !std::is_const_v<T>>>
  basic_view(C &array) : basic_view(array.data(), array.size()) {}  // NOLINT: implicit

  weft_array of(const weft_tensor &tensor) const {
    if (!is_(tensor.dtype))
      throw error(WEFT_WRONG_SIZE, std::string(tensor.name) + " has elements of " + tensor.dtype);
    return {const_cast<void *>(data_), bytes_};
  }

 private:
  std::conditional_t<is_const, const void *, void *> data_;
  std::size_t bytes_;
  bool (*is_)(const std::string &);
};
using input = basic_view<true>;
using output = basic_view<false>;

class file {
 public:
  explicit file(const std::string &path) : file_(new weft_file{}, close{}) {
    weft_error why;
    check(weft_open(file_.get(), path.c_str(), &why), why);
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    char name[512];
    while (weft_entry_name(get(), static_cast<int>(names.size()), name, sizeof name, nullptr) ==
           WEFT_OK)
      names.emplace_back(name);
    return names;
  }
  const weft_file *get() const noexcept { return file_.get(); }

 private:
  struct close {
    void operator()(weft_file *one) const noexcept {
      weft_close(one);
      delete one;
    }
  };
  std::shared_ptr<weft_file> file_;
};

class program {
 public:
  explicit program(const std::string &path) : program(weft::file(path)) {}
  explicit program(const weft::file &file, const std::string &entry = "main") {
    weft_error why;
    std::size_t bytes = 0;
    check(weft_program_bytes(file.get(), entry.c_str(), &bytes, &why), why);
    owned_ = std::make_shared<owned>(file, bytes);
    check(weft_load(&owned_->program, file.get(), entry.c_str(), owned_->description.data(), bytes,
                    &why), why);
  }
  const weft_program *get() const noexcept { return &owned_->program; }

 private:
  struct owned {
    owned(const weft::file &from, std::size_t bytes) : file(from), description(bytes) {}
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;
    ~owned() { weft_unload(&program); }
    weft::file file;
    memory description;
    weft_program program{};
  };
  std::shared_ptr<owned> owned_;
};

// A program at one set of sizes, with its workspace and its states; for one thread at a time.
class call {
 public:
  explicit call(const program &net, const std::vector<std::int64_t> &sizes = {})
      : program_(net), room_(weft_call_bytes(net.get())), workspace_(0) {
    weft_error why;
    if (sizes.size() != static_cast<std::size_t>(net.get()->num_symbols))
      throw error(WEFT_WRONG_SIZE,
                  "the program has " + std::to_string(net.get()->num_symbols) + " symbolic sizes");
    check(weft_prepare(&call_, net.get(), sizes.data(), room_.data(), room_.bytes(), &why), why);
    workspace_ = memory(call_.workspace_bytes);
    for (int i = 0; i < net.get()->num_states; i++) {
      kept_.emplace_back(bytes(net.get()->num_inputs + net.get()->num_outputs + i));
      states_.push_back({kept_.back().data(), kept_.back().bytes()});
    }
    check(weft_init_states(&call_, states_.data(), &why), why);
  }

  // Elements of input and output arrays.
  std::size_t input_size(int i) const { return bytes(i) / at(program_.get()->inputs, i); }
  std::size_t output_size(int i) const {
    return bytes(program_.get()->num_inputs + i) / at(program_.get()->outputs, i);
  }
  // A state, which runs read and write.
  const weft_array &state(int i) const { return states_.at(static_cast<std::size_t>(i)); }

  void run(const std::vector<input> &inputs, const std::vector<output> &outputs) {
    weft_error why;
    const weft_program *net = program_.get();
    const std::vector<weft_array> in = arrays(inputs, net->inputs, net->num_inputs, "inputs");
    const std::vector<weft_array> out = arrays(outputs, net->outputs, net->num_outputs, "outputs");
    check(weft_run(&call_, in.data(), out.data(), states_.data(), workspace_.data(),
                   workspace_.bytes(), &why), why);
  }

 private:
  std::size_t bytes(int i) const { return call_.array_bytes[i]; }
  static std::size_t at(const weft_tensor *tensors, int i) { return tensors[i].element_bytes; }
  template <class V>
  static std::vector<weft_array> arrays(const std::vector<V> &views, const weft_tensor *tensors,
                                        int count, const char *what) {
    if (views.size() != static_cast<std::size_t>(count))
      throw error(WEFT_WRONG_SIZE, "the program has " + std::to_string(count) + " " + what);
    std::vector<weft_array> made;
    for (std::size_t i = 0; i < views.size(); i++) made.push_back(views[i].of(tensors[i]));
    return made;
  }

  program program_;
  memory room_, workspace_;
  weft_call call_{};
  std::vector<memory> kept_;
  std::vector<weft_array> states_;
};

}  // namespace weft
#endif
