#include "kernels/cpu/isa.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "core/result.h"

namespace longhaul {
namespace {

constexpr std::array<Isa, 4> kIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

std::size_t count_supported() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
  if (!__builtin_cpu_supports("avx512f")) return 2;
  return __builtin_cpu_supports("avx512bf16") ? 4 : 3;
#else
  return 1;
#endif
}

std::atomic<Isa>& active() {
  static std::atomic<Isa> isa = supported_isas().back();
  return isa;
}

}  // namespace

std::string_view name_of(Isa isa) {
  constexpr std::array<std::string_view, 4> kNames = {"portable", "avx2", "avx512", "avx512_bf16"};
  return kNames[static_cast<std::size_t>(isa)];
}

std::span<const Isa> supported_isas() {
  static const std::size_t count = count_supported();
  return std::span(kIsas).first(count);
}

Isa active_isa() {
  return active().load(std::memory_order_relaxed);
}

void set_active_isa(Isa isa) {
  const auto isas = supported_isas();
  LH_CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end(),
           "only an instruction set of this machine can be chosen");
  active().store(isa, std::memory_order_relaxed);
}

}  // namespace longhaul
