// Predictions of the model of the hardware beside published figures, with their sources in
// spec/hardware.md. Programs run on an IPUModel, whose cycles are those of every machine; models
// are planned by commands that are printed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace vpod::fidelity {

class Report {
 public:
  // Prints the rows unless it is quiet.
  explicit Report(bool quiet = false) : quiet_(quiet) {}

  // A prediction: it counts in median and worst.
  void Add(const std::string& what, double predicted, double published);
  // A figure that a constant of the model was taken from, or that follows from shapes: no
  // prediction, which `why` says.
  void Check(const std::string& what, double predicted, double published, const char* why);
  // The same, of a figure that has no error.
  void Exact(const std::string& what, double predicted, double published, const char* why);
  // The arguments that `vpod plan` was given for the row before, and whether memory suffices.
  void Command(const std::string& words, bool fits) const;
  // Words, which should be the same.
  void Note(const std::string& what, const std::string& predicted, const std::string& published);
  // Begins a family of rows.
  void Head(const char* title);
  void End() const;

  // In percent.
  double median() const { return Median(AllBut("")); }
  double worst() const { return AllBut("").back(); }
  double worst_check() const { return worst_check_; }
  size_t rows() const { return AllBut("").size(); }
  bool exact_figures_agree() const { return exact_figures_agree_; }
  bool notes_agree() const { return notes_agree_; }

 private:
  using Errors = std::vector<double>;

  void Print(const std::string& what, double predicted, double published, const char* remark) const;
  Errors AllBut(const std::string& left_out) const;  // ascending
  static double Median(const Errors& sorted);

  const bool quiet_;
  std::string family_;
  std::map<std::string, Errors> errors_;  // in percent, by family
  double worst_check_ = 0;
  bool exact_figures_agree_ = true, notes_agree_ = true;
};

// Adds all rows.
absl::Status AddRows(Report& report);

}  // namespace vpod::fidelity
