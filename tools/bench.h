// Benchmarks: each suite measures a list of figures, compares each with its target, prints a table
// and writes build/bench/SUITE.json (below the current directory). Wall clocks are allowed here and
// nowhere else.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace longhaul {

struct BenchFigure {
  std::string name;
  double value;
  std::string unit;
  double target;
  std::string better;   // "lower" or "higher"
  bool holds;           // the value meets the target
  std::string peer;     // where the target comes from, with its version
  std::string command;  // repeats the measurement
};

/// Prints the table and writes the file. Returns an exit status: 0 if every figure holds, 3 if one
/// does not, 1 if the file could not be written.
int report(const std::string& suite, const std::vector<BenchFigure>& figures);

/// The most memory that this process has had at once.
double peak_gibibytes();

/// The search for DT-FM's objective on its published scenarios; with `quick` false also on the
/// larger ones, each with five seeds. Then dtfm_steps. Returns report's status, or 2 if an instance
/// cannot be read.
int bench_dtfm(bool quick, int threads);
/// Simulated steps on the published cases beside the paper's claims, and how far DT-FM's objective
/// orders placements as the simulation does. Prints its tables.
Result<std::vector<BenchFigure>> dtfm_steps(bool quick, int threads, const std::string& command);
/// Emulated runs of 20 settings (quick: 4) against their predictions, and the demo's. Takes minutes
/// and the whole machine.
int bench_fidelity(bool quick, int threads);
/// The same on settings of another seed, on which nothing was found or changed.
int bench_fidelity_full(int threads);
/// Our plan against the other policies on eight-cities and (not quick) ten-cities.
int bench_planner(bool quick, int threads);
/// How far modelled round trips and rates are from measured ones (netsim/latency_model.h).
int bench_cities(bool quick, int threads);
/// Our plan against every baseline on 20 random clusters (quick: 5) and the shipped ones.
int bench_clusters(bool quick, int threads);
/// The same on 200. Takes hours; goes on where it was interrupted, so delete build/bench/clusters-
/// done.jsonl after a change of code.
int bench_clusters_full(int threads);
/// What codecs do to a model's loss and time: fp32 and AQ-SGD, one seed (quick: a twentieth of the
/// tokens). Makes a pre-trained state the first time; `threads` runs go side by side.
int bench_compression(bool quick, int threads);
/// All settings and three seeds. Takes hours; goes on where it was interrupted.
int bench_compression_full(int threads);
/// Speed and error of every codec of the wire, of a safetensors file's tensors, too, where `path`
/// is one. Returns report's status, or 2 if the file cannot be read.
int bench_codec(bool quick, const std::string& path);
/// Training steps of four models on one core against PyTorch (tools/judges; without it: against the
/// peak alone). Takes a quarter of an hour; quick: without torch.compile.
int bench_compute(bool quick, int threads);
/// Speed of the tokenizers on one core, beside Hugging Face's where tools/judges has it.
int bench_data(bool quick, int threads);
/// Speed of the CPU kernels on one core.
int bench_kernels(bool quick, int threads);
/// Whether emulated runs confirm the simulated order of our plan and the best baseline's, on 10
/// small random clusters (quick: 2). Takes minutes and the whole machine.
int bench_order(bool quick, int threads);
/// Time, memory and quality of the search on clusters of 64 to 10,000 devices (quick: 1,024).
int bench_scale(bool quick, int threads);
/// The quality against 20 seeds at ten times the effort. Takes an hour.
int bench_scale_full(int threads);
/// Our flow network against SimGrid, which tools/simgrid fetches: equal ends of flows, and speed.
int bench_simgrid(bool quick, int threads);
/// Speed of the engines that simulate a step, on clusters of up to 10,000 devices (quick: 1,024).
int bench_netsim(bool quick, int threads);
/// Real TCP through a bridge against the link model: messages and all-reduces (quick: two of ten
/// settings). Where namespaces and TUN devices are not allowed it says why and returns 0.
int bench_tcp(bool quick, int threads);
/// The same on ten other settings, on which nothing was chosen.
int bench_tcp_full(int threads);

}  // namespace longhaul
