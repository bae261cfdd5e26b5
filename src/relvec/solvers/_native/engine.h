// The search for a sparse Gaussian regression: additions, deletions, exchanges and Newton steps on all precisions.
//
// The data enter through q0 = Phi't, |t|^2, N and columns of Phi'Phi on demand. With X = beta^1/2 Phi_a A^-1/2,
// U'U = I + X'X and u = U^-T X't beta^1/2:
//
//     T = Phi'X U^-1 (M, k)       S = beta (1 - |T_j|^2)       Q = beta (q0 - T u / beta^1/2)        TF03 eq. (22)
//     L = -1/2 [N log 2 pi - N log beta + 2 log |U| + beta |t|^2 - u'u]                              T01 eq. (36)
//
// An atom with precision alpha_j = S_j^2 / (Q_j^2 - S_j) adds one column to T: c = g_j - T T_j', d = alpha_j + S_j,
// T <- [T, c (beta / d)^1/2], S <- S - beta^2 c^2 / d, Q <- Q - beta c Q_j / d. No rows are seen, nothing is factored.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace relvec {

constexpr double INF = std::numeric_limits<double>::infinity();
constexpr double LOG_2PI = 1.8378770664093454836;
constexpr double SLACK = 1e-13;               // relative: an objective that is equal but for rounding has not fallen
constexpr double LONGEST_STEP = 3.0;          // in log units, of a Newton step
constexpr double LEAST_DAMPING = 3e-3;
constexpr int MAX_DAMPINGS = 40;
constexpr double MIN_NEWTON_GAIN_NATS = 0.01; // Newton steps between additions that promise less wait
constexpr double STEP_SHARE = 0.1;            // of the model, added between Newton steps
constexpr double RATIO_TIE = 1e-9;            // relative: ratios closer than this are equal
constexpr double MAX_DIAGONAL = 1e8;          // of X'X: above, the normal equations lose too many digits
constexpr double MAX_FIT = 1e11;              // of beta |t|^2, likewise: L is a difference of numbers as large
constexpr double LEAST_S = 1e-10;             // of S / beta, and as a share of the largest diagonal of X'X:
constexpr double LEAST_S_SHARE = 1e-14;       // smaller parts outside the model have no digits
constexpr int EXCHANGES_TRIED = 4;
constexpr double MIN_EXCHANGE_GAIN_NATS = -1.0;
constexpr double COPY = 1.0 - 1e-12;          // correlation of copies
constexpr double ROUGH_TOL_NATS = 0.05;       // smaller gains are left at first in restarts
constexpr double MAX_SHORTFALL_NATS = 5.0;    // a restart that falls short by no more is settled to the end
constexpr double SMALL_SHORTFALL_NATS = 2.0;  // likewise, of the starts from few atoms or without some
constexpr double MIN_REPEAT_GAIN_NATS = 1.0;  // a restart that gains as much is tried again
constexpr double MIN_RESTART_GAIN_NATS = 0.1;
constexpr double NATS_A_FUNCTION = 0.5;       // that a restart has to gain for each function it adds
constexpr int USUAL_RESTARTS = 3, MAX_FAILURES = 2, MAX_RESTARTED = 600;
constexpr double LOW_NOISE[3] = {0.2, 0.5, 0.3};
constexpr int MIN_ADDED = 10, MAX_ADDED = 100;
constexpr double ADDED_SHARE = 0.5;
constexpr double MAX_NOISE_RISE = 5.0;        // above its start: then a noise that may not rise is tried
constexpr int SHORT_DICTIONARY = 256;         // atoms: a search from all of them is tried where a model has few,
constexpr int QUICK_DICTIONARY = 128;         // and up to so many whether the noise has risen or not, with the starts
constexpr int RANDOM_STARTS = 3;              // that a thorough search makes among few atoms (`benchmarks/optima.py`)
constexpr int WITHOUT_ONE = 4;
constexpr double FEW_SHARE = 0.15;            // of the rows: few atoms
constexpr int BACKWARD_UPDATES[2] = {12, 20};  // of MacKay and of expectation-maximisation
constexpr double MAX_SPREAD = 1e7, MOST_ALPHA = 1e3;  // beta / alpha at most, and the precision at which an atom leaves
constexpr int CAPPED_ATOMS = 30;
constexpr double CAPPED_SHARE = 0.1;
constexpr double NOISELESS = 0.01, CROWDED = 0.5;
constexpr double PAIR_CORRELATION = 0.9;
constexpr int MAX_PAIRS = 5;
constexpr double DROPPED_SHARE = 0.2;
constexpr int ALPHA_BITS = 10, BETA_BITS = 16;  // kept on the way, so that rounding does not decide where it leads
constexpr double MILLISECONDS_A_TICK = 5.0, MILLISECONDS_A_REPORT = 200.0;  // besides one of every step
constexpr double CLOSE = 1e-9;                // of S / beta: the certificate of nearer atoms needs more digits
constexpr int MAX_REFUTED = 16;               // promises of a scan that may turn out to be rounding
constexpr int MAX_RETRIES = 3;
constexpr size_t FETCHED_TOGETHER = 64;       // Gram columns

enum Action { START, ADD, REESTIMATE, REMOVE, EXCHANGE, RESTART };
enum Ended { DONE, STOPPED, LATE, MAX_STEPS, NO_DIGITS, FAILED };
enum Prior { FLAT, SIZE, CONSTANT };
enum Update { MACKAY, EM };

struct Blas {
  void (*dgemv)(char*, int*, int*, double*, double*, int*, double*, int*, double*, double*, int*);
  void (*dtrsv)(char*, char*, char*, int*, double*, int*, double*, int*);
  void (*dtrsm)(char*, char*, char*, char*, int*, int*, double*, double*, int*, double*, int*);
  void (*dtrmm)(char*, char*, char*, char*, int*, int*, double*, double*, int*, double*, int*);
  void (*dpotrf)(char*, int*, double*, int*, int*);
  void (*dpotri)(char*, int*, double*, int*, int*);
  void (*dpotrs)(char*, int*, int*, double*, int*, double*, int*, int*);
  void (*dtrtri)(char*, char*, int*, double*, int*, int*);
};

struct Settings {
  double tol, tol_of_many;
  int large_model;
  double noise_floor, noise_start;
  bool fixed_noise;
  double prior_c, prior_d;
  double near_correlation, near_price;
  int prior;
  double price, least_price;
  int max_functions;
  int restarts, batch, noise_every;  // batch: additions between Newton steps, 0 for a share of the model
  bool exchange;
  bool thorough;  // restarts are judged by the evidence alone, and more of them are tried among few atoms
  int max_steps;
  double seconds;  // negative: any
  std::uint64_t seed;
  bool watched;  // every step is told
};

struct Step {
  int action, atom, size;
  double objective, noise;
};

using Fetch = int (*)(void*, const int*, int, double*);  // Gram columns of some atoms; not 0 where that failed
using Tick = int (*)(void*, int, double, double);  // size, objective, last gain; not 0 to stop

inline double coarse(double x, int bits) {
  int exponent;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::rint(std::ldexp(mantissa, bits)), exponent - bits);
}

inline bool not_lower(double now, double before) { return now >= before - SLACK * std::max(1.0, std::fabs(before)); }

inline double gain_of(double ratio) { return ratio > 1.0 ? 0.5 * (ratio - 1.0 - std::log(ratio)) : 0.0; }  // TF03 A.2

inline double best_alpha(double S, double Q) { return S * S / std::max(Q * Q - S, 1e-3 * S); }  // TF03 eq. (20)

// A support with its precisions; `complete` has the posterior too.
struct Model {
  std::vector<int> atoms;
  std::vector<double> alpha;
  double beta = 1.0;
  double objective = -INF;
  double widest = 0.0;                 // of the diagonal of X'X
  std::vector<double> gram;            // (k, k) Phi_a'Phi_a
  std::vector<double> U, u;            // (k, k) upper, (k,)
  std::vector<double> B, v;            // (k, k) A^1/2 Sigma A^1/2, (k,) A^1/2 mu
  double residual = 0.0;
  bool completed = false;
  int size() const { return static_cast<int>(atoms.size()); }
};

struct Stop { Ended why; };

class Engine {
 public:
  std::vector<Step> history;
  Model model;
  double largest = INF;  // the certificate: nats that the best single move still gains
  bool sure = false;     // whether all of it has digits

  Engine(const Blas& blas, const Settings& settings, int M, double N, double tt, const double* q0, const double* unit,
         const long long* order, int bias, Fetch fetch, Tick tick, void* context)
      : blas_(blas), set_(settings), M_(M), N_(N), tt_(tt), q0_(q0, q0 + M), unit_(unit, unit + M),
        order_(order, order + M), bias_(bias), fetch_(fetch), tick_(tick), context_(context),
        slot_(M, -1), in_(M), crowd_(M), blocked_(M), S_(M), Q_(M), ratio_(M), column_(M),
        began_(std::chrono::steady_clock::now()), ticked_(began_), reported_(began_), random_(settings.seed * 2 + 1) {
    near_ratio_ = 3.0 + 2.0 * set_.near_price;
    for (int i = 0; i < 60; i++) near_ratio_ = 1.0 + 2.0 * set_.near_price + std::log(near_ratio_);
    candidates_ = 0;
    for (int j = 0; j < M_; j++) candidates_ += unit_[j] > 0.0 && j != bias_;
  }

  // Searches from a model; how that ended. The model is the best so far in any case.
  Ended run(const int* atoms, const double* alpha, int k, double beta) {
    model.atoms.assign(atoms, atoms + k);
    model.alpha.assign(alpha, alpha + k);
    model.beta = beta;
    try {
      load(model);
      best_ = model;
      recording_ = true;
      record(START, -1);
      search();
    } catch (const Stop& stop) {
      model = best_;
      return stop.why;
    }
    return DONE;
  }

  const double* S() const { return S_.data(); }
  const double* Q() const { return Q_.data(); }
  const double* T() const { return T_.data(); }

  // Cost in nats of the function that comes after so many.
  double cost(int count) const {
    if (set_.prior == CONSTANT) return set_.price;
    if (set_.prior == FLAT) return 0.0;
    return std::max(set_.least_price, std::log(std::max(candidates_ - count, 1)) - std::log(count + 1.0));
  }

 private:
  Blas blas_;
  Settings set_;
  int M_;
  double N_, tt_;
  std::vector<double> q0_, unit_;
  std::vector<long long> order_;
  int bias_, candidates_;
  Fetch fetch_;
  Tick tick_;
  void* context_;
  std::vector<int> slot_;
  std::vector<std::vector<double>> grams_;
  std::vector<std::vector<int>> nears_;
  std::vector<unsigned char> in_;
  std::vector<int> crowd_;
  std::vector<unsigned char> blocked_;
  std::vector<double> S_, Q_, ratio_, column_, T_, cross_;
  std::vector<double> g_, em_, H_, damped_, step_, alpha_;
  Model trial_, best_;
  std::chrono::steady_clock::time_point began_, ticked_, reported_;
  std::uint64_t random_;
  double near_ratio_, near_factor_ = 1.0;
  bool recording_ = false;
  int steps_ = 0;

  // ---------------------------------------------------------------- the world outside

  void watch() {
    const auto now = std::chrono::steady_clock::now();
    const auto milliseconds = std::chrono::duration<double, std::milli>(now - ticked_).count();
    if (set_.seconds >= 0.0 && std::chrono::duration<double>(now - began_).count() > set_.seconds) throw Stop{LATE};
    if (milliseconds < MILLISECONDS_A_TICK) return;
    ticked_ = now;
    if (std::chrono::duration<double, std::milli>(now - reported_).count() > MILLISECONDS_A_REPORT)
      report();
    else if (tick_(context_, -1, 0.0, 0.0))  // signals alone
      throw Stop{STOPPED};
  }

  void report() {
    reported_ = std::chrono::steady_clock::now();
    const double last = history.size() > 1 ? history.back().objective - history[history.size() - 2].objective : 0.0;
    if (tick_(context_, best_.size(), best_.objective, last)) throw Stop{STOPPED};
  }

  void record(Action action, int atom) {
    if (!recording_) return;
    best_ = model;
    history.push_back(Step{action, atom, model.size(), model.objective, 1.0 / model.beta});
    if (set_.watched) report();
    if (action != START && static_cast<int>(history.size()) > set_.max_steps) throw Stop{MAX_STEPS};
  }

  const double* gram(int atom) {
    if (slot_[atom] < 0) fetch(&atom, 1);
    return grams_[slot_[atom]].data();
  }

  // Gram columns of different atoms that are not known yet: together they are one product of matrices.
  void fetch(const int* atoms, int count) {
    std::vector<double> fresh(static_cast<size_t>(M_) * count);
    if (fetch_(context_, atoms, count, fresh.data())) throw Stop{FAILED};
    for (int i = 0; i < count; i++) {
      const double* own = &fresh[static_cast<size_t>(i) * M_];
      std::vector<int> near;
      if (atoms[i] != bias_)
        for (int j = 0; j < M_; j++)
          if (std::fabs(own[j]) > set_.near_correlation && j != atoms[i] && j != bias_) near.push_back(j);
      slot_[atoms[i]] = static_cast<int>(grams_.size());
      grams_.emplace_back(own, own + M_);
      nears_.push_back(std::move(near));
    }
  }

  void fetch_missing(const std::vector<int>& atoms) {
    std::vector<int> missing;
    for (int atom : atoms)
      if (slot_[atom] < 0) missing.push_back(atom);
    for (size_t i = 0; i < missing.size(); i += FETCHED_TOGETHER)
      fetch(&missing[i], static_cast<int>(std::min(missing.size() - i, FETCHED_TOGETHER)));
  }

  // ---------------------------------------------------------------- a model at given precisions

  double tolerance(int size) const {
    return size <= set_.large_model ? set_.tol : std::max(set_.tol, set_.tol_of_many);
  }

  int functions(const Model& m) const {
    int k = m.size();
    for (int atom : m.atoms) k -= atom == bias_;
    return k;
  }

  // Log evidence plus log prior of the support, but for a constant; -inf where it has too many functions.
  double score(const Model& m) const {
    double total = m.objective;
    if (set_.max_functions >= 0 && functions(m) > set_.max_functions) return -INF;
    if (set_.prior != FLAT)
      for (int k = functions(m) - 1; k >= 0; k--) total -= cost(k);
    return total;
  }

  void assemble(Model& m) {
    const int k = m.size();
    fetch_missing(m.atoms);
    m.gram.resize(static_cast<size_t>(k) * k);
    for (int j = 0; j < k; j++) {
      const double* g = gram(m.atoms[j]);
      for (int i = 0; i < k; i++) m.gram[static_cast<size_t>(j) * k + i] = g[m.atoms[i]];
    }
  }

  // U, u and the objective at precisions alpha and beta; whether these have digits.
  bool evaluate(const Model& m, const double* alpha, double beta, Model& to) {
    int k = m.size(), one = 1, info = 0;
    to.U.resize(static_cast<size_t>(k) * k);
    to.u.resize(k);
    alpha_.resize(k);
    double widest = 0.0, log_det = 0.0, fit = 0.0;
    for (int i = 0; i < k; i++) alpha_[i] = std::sqrt(beta / alpha[i]);
    for (int j = 0; j < k; j++) {
      const double* from = &m.gram[static_cast<size_t>(j) * k];
      double* into = &to.U[static_cast<size_t>(j) * k];
      for (int i = 0; i <= j; i++) into[i] = from[i] * (alpha_[i] * alpha_[j]);
      widest = std::max(widest, into[j]);
      into[j] += 1.0;
      to.u[j] = q0_[m.atoms[j]] * alpha_[j] * std::sqrt(beta);
    }
    if (k) {
      blas_.dpotrf(const_cast<char*>("U"), &k, to.U.data(), &k, &info);
      if (info) return false;
      for (int i = 0; i < k; i++) log_det += std::log(to.U[static_cast<size_t>(i) * k + i]);
      blas_.dtrsv(const_cast<char*>("U"), const_cast<char*>("T"), const_cast<char*>("N"), &k, to.U.data(), &k,
                  to.u.data(), &one);
      for (int i = 0; i < k; i++) fit += to.u[i] * to.u[i];
    }
    to.widest = widest;
    to.objective = set_.prior_c * std::log(beta) - set_.prior_d * beta -
                   0.5 * (N_ * (LOG_2PI - std::log(beta)) + 2.0 * log_det + beta * tt_ - fit);
    to.completed = false;
    return std::isfinite(to.objective);
  }

  static bool has_digits(const Model& m, double beta, double tt) {
    return m.widest <= MAX_DIAGONAL && beta * tt <= MAX_FIT;
  }

  // The model after its atoms or precisions were set.
  void load(Model& m) {
    watch();
    assemble(m);
    if (!evaluate(m, m.alpha.data(), m.beta, m) || !has_digits(m, m.beta, tt_)) throw Stop{NO_DIGITS};
    complete(m);
  }

  // v, B and the residual.
  void complete(Model& m) {
    int k = m.size(), one = 1, info = 0;
    m.v = m.u;
    m.B = m.U;
    double fit = 0.0, weight = 0.0;
    if (k) {
      blas_.dtrsv(const_cast<char*>("U"), const_cast<char*>("N"), const_cast<char*>("N"), &k, m.U.data(), &k,
                  m.v.data(), &one);
      blas_.dpotri(const_cast<char*>("U"), &k, m.B.data(), &k, &info);
      for (int j = 0; j < k; j++) {
        for (int i = 0; i < j; i++) m.B[static_cast<size_t>(i) * k + j] = m.B[static_cast<size_t>(j) * k + i];
        fit += m.u[j] * m.u[j];
        weight += m.v[j] * m.v[j];
      }
    }
    m.residual = std::max((m.beta * tt_ - fit - weight) / m.beta, 0.0);
    m.completed = true;
  }

  double shrinkage(int i) const { return model.B[static_cast<size_t>(i) * model.size() + i]; }

  double gain_delete(int i) const {  // TF03 A.4
    const double b = shrinkage(i);
    return 0.5 * (-std::log(b) - model.v[i] * model.v[i] / b);
  }

  // Without atoms whose places are marked.
  void leave_out(const std::vector<unsigned char>& gone) {
    size_t kept = 0;
    for (size_t i = 0; i < model.atoms.size(); i++)
      if (!gone[i]) {
        model.atoms[kept] = model.atoms[i];
        model.alpha[kept++] = model.alpha[i];
      }
    model.atoms.resize(kept);
    model.alpha.resize(kept);
    load(model);
  }

  // Without the atoms whose optimal precision is infinite (TF03 eq. (21)), while the objective does not fall.
  void prune() {
    while (true) {
      const int k = model.size();
      std::vector<unsigned char> gone(k);
      int worst = -1;
      for (int i = 0; i < k; i++) {
        const double b = shrinkage(i);
        gone[i] = model.v[i] * model.v[i] <= (1.0 - b) * b;
        if (gone[i] && (worst < 0 || gain_delete(i) > gain_delete(worst))) worst = i;
      }
      if (worst < 0) return;
      Model before = model;
      leave_out(gone);
      if (not_lower(model.objective, before.objective)) continue;
      model = before;
      std::fill(gone.begin(), gone.end(), 0);
      gone[worst] = 1;
      leave_out(gone);
      if (not_lower(model.objective, before.objective)) continue;
      model = std::move(before);
      return;
    }
  }

  // ---------------------------------------------------------------- Newton steps on log alpha and log beta

  // Gradient, curvature of the step of expectation-maximisation and -Hessian; see evidence.prior_unit_hessian.
  void derivatives(bool free, double g_beta) {
    const int k = model.size(), n = k + free;
    g_.resize(n);
    em_.resize(n);
    H_.resize(static_cast<size_t>(n) * n);
    double trace = 0.0, squares = 0.0, moves = 0.0;
    const double* v = model.v.data();
    for (int j = 0; j < k; j++) {
      const double* b = &model.B[static_cast<size_t>(j) * k];
      double* h = &H_[static_cast<size_t>(j) * n];
      const double own = b[j], vj = v[j];
      double moved = 0.0, square = 0.0;
      for (int i = 0; i < k; i++) {
        const double x = b[i];
        moved += x * v[i];
        square += x * x;
        h[i] = -(v[i] * vj * x + 0.5 * x * x);
      }
      moved *= vj;
      square *= 0.5;
      h[j] += 0.5 * (vj * vj + own);
      g_[j] = 0.5 * (1.0 - own - vj * vj);
      em_[j] = 0.5 * (vj * vj + own);
      if (free) h[k] = H_[static_cast<size_t>(k) * n + j] = -(0.5 * own - moved - square);
      trace += own;
      squares += square;
      moves += moved;
    }
    if (free) {
      g_[k] = g_beta;
      em_[k] = 0.5 * N_;
      H_[static_cast<size_t>(n) * n - 1] =
          set_.prior_d * model.beta - (squares - 0.5 * (trace + model.beta * model.residual) + moves);
    }
  }

  bool newton(bool free, bool rough, double ceiling, double& damping, double& promised) {
    int k = model.size(), n = k + free, one = 1, info = 0;
    std::vector<double> alpha(k);
    for (int turn = 0; turn < MAX_DAMPINGS; turn++) {
      damped_ = H_;
      step_ = g_;
      for (int i = 0; i < n; i++) damped_[static_cast<size_t>(i) * n + i] += damping * em_[i];
      blas_.dpotrf(const_cast<char*>("U"), &n, damped_.data(), &n, &info);
      if (!info) {
        blas_.dpotrs(const_cast<char*>("U"), &n, &one, damped_.data(), &n, step_.data(), &n, &info);
        double longest = 0.0;
        bool finite = true;
        for (int i = 0; i < n; i++) {
          finite = finite && std::isfinite(step_[i]);
          longest = std::max(longest, std::fabs(step_[i]));
        }
        if (finite) {
          const double share = longest > LONGEST_STEP ? LONGEST_STEP / longest : 1.0;
          double beta = model.beta;
          promised = 0.0;
          for (int i = 0; i < n; i++) promised += 0.5 * g_[i] * step_[i] * share;
          if (free) {
            beta = std::min(std::max(beta * std::exp(share * step_[k]), 1.0 / ceiling), 1.0 / set_.noise_floor);
            if (rough) beta = coarse(beta, BETA_BITS);
          }
          for (int i = 0; i < k; i++) {
            alpha[i] = model.alpha[i] * std::exp(share * step_[i]);
            if (rough) alpha[i] = coarse(alpha[i], ALPHA_BITS);
          }
          bool known = evaluate(model, alpha.data(), beta, trial_);
          if (known && !has_digits(trial_, beta, tt_)) {
            if (recording_) throw Stop{NO_DIGITS};
            known = false;  // a restart keeps to where there are digits
          }
          if (known && not_lower(trial_.objective, model.objective)) {
            model.U.swap(trial_.U);
            model.u.swap(trial_.u);
            model.alpha.swap(alpha);
            model.beta = beta;
            model.widest = trial_.widest;
            model.objective = trial_.objective;
            complete(model);
            damping = damping > LEAST_DAMPING ? 0.5 * damping : 0.0;
            return true;
          }
        }
      }
      damping = std::max(LEAST_DAMPING, 2.0 * damping);
    }
    return false;
  }

  // At most so many Newton steps, while they promise more than min_gain; atoms leave on the way.
  void relax(int steps, bool hold, double min_gain, double ceiling) {
    double damping = 0.0, promised = 0.0;
    hold = hold || set_.fixed_noise;
    for (int turn = 0; turn < steps; turn++) {
      watch();
      prune();
      double total = 0.0;
      for (int i = 0; i < model.size(); i++) total += 1.0 - shrinkage(i);
      double g_beta = 0.5 * (N_ - model.beta * model.residual - total);  // T01 eq. (45)
      g_beta += set_.prior_c - set_.prior_d * model.beta;
      const bool free =
          !hold && (g_beta > 0.0 ? model.beta < 1.0 / set_.noise_floor : model.beta * ceiling > 1.0);
      if (!model.size() && !free) break;
      derivatives(free, g_beta);
      const double before = model.objective;
      if (!newton(free, min_gain > 0.0, ceiling, damping, promised)) break;
      if (promised < std::max(min_gain, SLACK * std::max(1.0, std::fabs(before)))) break;
    }
    prune();
  }

  // ---------------------------------------------------------------- additions

  void mark() {
    std::fill(in_.begin(), in_.end(), 0);
    std::fill(crowd_.begin(), crowd_.end(), 0);
    for (int atom : model.atoms) enter(atom);
  }

  void enter(int atom) {
    in_[atom] = 1;
    gram(atom);
    for (int j : nears_[slot_[atom]]) crowd_[j]++;
  }

  // S, Q and T of all atoms, from the model alone.
  void scan() {
    watch();
    int k = model.size(), one = 1;
    mark();
    T_.resize(static_cast<size_t>(M_) * k);
    for (int i = 0; i < k; i++) {
      const double* g = gram(model.atoms[i]);
      const double spread = std::sqrt(model.beta / model.alpha[i]);
      double* into = &T_[static_cast<size_t>(i) * M_];
      for (int j = 0; j < M_; j++) into[j] = g[j] * spread;
    }
    for (int j = 0; j < M_; j++) {
      S_[j] = unit_[j];
      Q_[j] = q0_[j];
    }
    if (k) {
      double plus = 1.0, minus = -1.0 / std::sqrt(model.beta);
      blas_.dtrsm(const_cast<char*>("R"), const_cast<char*>("U"), const_cast<char*>("N"), const_cast<char*>("N"), &M_,
                  &k, &plus, model.U.data(), &k, T_.data(), &M_);
      for (int i = 0; i < k; i++) {
        const double* from = &T_[static_cast<size_t>(i) * M_];
        for (int j = 0; j < M_; j++) S_[j] -= from[j] * from[j];
      }
      blas_.dgemv(const_cast<char*>("N"), &M_, &k, &minus, T_.data(), &M_, model.u.data(), &one, &plus, Q_.data(),
                  &one);
    }
    for (int j = 0; j < M_; j++) {
      S_[j] *= model.beta;
      Q_[j] *= model.beta;
    }
  }

  double least_S() const { return model.beta * std::max(LEAST_S, LEAST_S_SHARE * model.widest); }

  // The atom whose addition gains most, of equals the first by content; -1 where none gains more than tol and its cost.
  int candidate(double tol) const {
    const double least = least_S();
    double top = 0.0;
    int found = -1;
    const bool full = set_.max_functions >= 0 && functions(model) >= set_.max_functions;
    auto ratio_of = [&](int j) {
      if (in_[j] || blocked_[j] || !(S_[j] > least) || (full && j != bias_)) return 0.0;
      const double ratio = Q_[j] * Q_[j] / S_[j];
      return crowd_[j] && !(ratio > near_ratio_ * near_factor_) ? 0.0 : ratio;
    };
    for (int j = 0; j < M_; j++) {
      const double ratio = ratio_of(j);
      if (ratio >= top * (1.0 - RATIO_TIE)) {
        if (found < 0 || ratio > top * (1.0 + RATIO_TIE) || order_[j] < order_[found]) found = j;
        top = std::max(top, ratio);
      }
    }
    if (found < 0) return -1;
    const double threshold = set_.prior == FLAT || tol < 0.0 ? tol : std::max(tol, cost(functions(model)));
    if (set_.prior != FLAT && bias_ >= 0 && gain_of(ratio_of(bias_)) > std::max(tol, 0.0)) return bias_;
    return top > 0.0 && gain_of(top) > threshold ? found : -1;
  }

  void add(int j) {
    int k = model.size(), one = 1;
    const double S = S_[j], Q = Q_[j];
    const double alpha = coarse(best_alpha(S, Q), ALPHA_BITS);
    const double* g = gram(j);
    std::copy(g, g + M_, column_.begin());
    if (k) {
      std::vector<double> row(k);
      for (int i = 0; i < k; i++) row[i] = T_[static_cast<size_t>(i) * M_ + j];
      double minus = -1.0, plus = 1.0;
      blas_.dgemv(const_cast<char*>("N"), &M_, &k, &minus, T_.data(), &M_, row.data(), &one, &plus, column_.data(),
                  &one);
    }
    T_.resize(static_cast<size_t>(M_) * (k + 1));
    double* into = &T_[static_cast<size_t>(k) * M_];
    const double d = alpha + S, beta = model.beta, w = std::sqrt(beta / d), qs = beta * Q / d, ss = beta * beta / d;
    for (int q = 0; q < M_; q++) {
      const double c = column_[q];
      into[q] = c * w;
      S_[q] -= ss * c * c;
      Q_[q] -= qs * c;
    }
    model.atoms.push_back(j);
    model.alpha.push_back(alpha);
    enter(j);
  }

  // Additions with Newton steps in between, until none gains more than tol.
  void climb(double tol, bool hold = false, int most = std::numeric_limits<int>::max(), double ceiling = INF,
             int last_steps = 100) {
    std::fill(blocked_.begin(), blocked_.end(), 0);
    scan();
    bool settled = false;
    int since = 0;
    std::vector<int> base_atoms = model.atoms;
    std::vector<double> base_alpha = model.alpha;
    double base_beta = model.beta, base = model.objective;
    while (true) {
      watch();
      const int j = model.size() < most ? candidate(tol) : -1;
      if (j >= 0) {
        if (!since) {
          base_atoms = model.atoms;
          base_alpha = model.alpha;
          base_beta = model.beta;
          base = model.objective;
        }
        add(j);
        settled = false;
        if (++since < (set_.batch ? set_.batch : std::max(1.0, STEP_SHARE * model.size()))) continue;
      } else if (settled) {
        return;
      }
      if (since) {
        load(model);
        if (!(model.objective > base)) {  // what the updates promised was rounding
          for (size_t i = base_atoms.size(); i < model.atoms.size(); i++) blocked_[model.atoms[i]] = 1;
          model.atoms = base_atoms;
          model.alpha = base_alpha;
          model.beta = base_beta;
          load(model);
          since = 0;
          scan();
          continue;
        }
      }
      const int size = model.size(), atom = since ? model.atoms.back() : -1;
      const bool waits = hold || (j >= 0 && ++steps_ % set_.noise_every != 0);
      relax(j >= 0 ? 1 : last_steps, waits, j >= 0 ? MIN_NEWTON_GAIN_NATS : tol, ceiling);
      if (j >= 0 && model.size() < size) relax(10, hold, MIN_NEWTON_GAIN_NATS, ceiling);
      if (since || recording_) record(since ? ADD : REESTIMATE, atom);
      settled = j < 0;
      since = 0;
      scan();
    }
  }

  // ---------------------------------------------------------------- exchanges, deletions

  struct Offer {
    double gain, S, Q;
    int leaving, entering;
  };

  // The best exchange of every atom; the scan is that of the model.
  std::vector<Offer> offers() {
    int k = model.size(), info = 0;
    std::vector<double> V(model.U);
    std::vector<Offer> found;
    if (!k) return found;
    blas_.dtrtri(const_cast<char*>("U"), const_cast<char*>("N"), &k, V.data(), &k, &info);
    cross_ = T_;
    double one = 1.0;
    blas_.dtrmm(const_cast<char*>("R"), const_cast<char*>("U"), const_cast<char*>("T"), const_cast<char*>("N"), &M_, &k,
                &one, V.data(), &k, cross_.data(), &M_);
    const double least = least_S();
    for (int i = 0; i < k; i++) {
      const int atom = model.atoms[i];
      if (set_.prior != FLAT && atom == bias_) continue;
      const double spread = std::sqrt(model.beta / model.alpha[i]);  // cross = Sigma Phi_a'B Phi
      const double variance = shrinkage(i) / model.alpha[i], mean = model.v[i] / std::sqrt(model.alpha[i]);
      const double* c = &cross_[static_cast<size_t>(i) * M_];
      const double* own = gram(atom);
      const double ss = spread * spread / variance, qs = spread * mean / variance;
      for (int j : nears_[slot_[atom]]) crowd_[j]--;
      double top = 0.0;
      int best = -1;
      for (int j = 0; j < M_; j++) {  // TF03 A.4: what leaves is added to S and Q
        if (in_[j] || !(S_[j] > least)) continue;
        const double S = S_[j] + ss * c[j] * c[j], Q = Q_[j] + qs * c[j], ratio = Q * Q / S;
        if (!(ratio >= top * (1.0 - RATIO_TIE)) || (crowd_[j] && !(ratio > near_ratio_)) || std::fabs(own[j]) > COPY)
          continue;
        if (best < 0 || ratio > top * (1.0 + RATIO_TIE) || order_[j] < order_[best]) best = j;
        top = std::max(top, ratio);
      }
      for (int j : nears_[slot_[atom]]) crowd_[j]++;
      if (best < 0) continue;
      const double S = S_[best] + ss * c[best] * c[best], Q = Q_[best] + qs * c[best];
      found.push_back(Offer{gain_of(Q * Q / S) + gain_delete(i), S, Q, i, best});
    }
    std::stable_sort(found.begin(), found.end(), [&](const Offer& a, const Offer& b) {
      const double x = std::rint(a.gain * 1e6), y = std::rint(b.gain * 1e6);  // further digits are rounding
      if (x != y) return x > y;
      return order_[model.atoms[a.leaving]] < order_[model.atoms[b.leaving]];
    });
    return found;
  }

  // One atom for another where that gains more than tol with precisions re-estimated (TF03 6.2).
  bool exchange(double tol) {
    if (!set_.exchange || !model.size()) return false;
    const std::vector<Offer> found = offers();
    const Model before = model;
    const double least = score(before) + tol;
    const int tries = std::min<int>(EXCHANGES_TRIED, static_cast<int>(found.size()));
    for (int turn = 0; turn < tries && found[turn].gain >= MIN_EXCHANGE_GAIN_NATS; turn++) {
      const Offer& offer = found[turn];
      model.atoms[offer.leaving] = offer.entering;
      model.alpha[offer.leaving] = coarse(best_alpha(offer.S, offer.Q), ALPHA_BITS);
      load(model);
      relax(2, false, tol, INF);
      if (score(model) > least) {
        relax(30, false, tol, INF);
        record(EXCHANGE, offer.entering);
        scan();
        return true;
      }
      model = before;
    }
    return false;
  }

  // Without the function that is worth less than the prior charges for it.
  bool shrink(double tol) {
    const int k = model.size();
    if (set_.prior == FLAT || !functions(model)) return false;
    int worst = -1;
    for (int i = 0; i < k; i++)
      if (model.atoms[i] != bias_ && (worst < 0 || gain_delete(i) > gain_delete(worst))) worst = i;
    const double refund = cost(functions(model) - 1);
    if (-gain_delete(worst) > refund + 1.0) return false;
    const Model before = model;
    std::vector<unsigned char> gone(k);
    gone[worst] = 1;
    const int atom = model.atoms[worst];
    leave_out(gone);
    relax(30, false, 0.1 * tol, INF);
    if (score(model) > score(before) + tol) {
      record(REMOVE, atom);
      scan();
      return true;
    }
    model = before;
    return false;
  }

  // Additions, deletions and exchanges until none gains.
  void ascend() {
    while (true) {
      climb(tolerance(model.size()));
      while (shrink(tolerance(model.size()))) {}
      if (!exchange(tolerance(model.size()))) return;
    }
  }

  // ---------------------------------------------------------------- other local maxima

  bool noiseless(const Model& m) const { return !set_.fixed_noise && m.beta * set_.noise_floor > NOISELESS; }
  bool crowded(const Model& m) const { return m.size() > CROWDED * N_; }

  bool admits(const Model& from, const Model& to) const {
    return (!noiseless(to) || noiseless(from)) && (!crowded(to) || crowded(from));
  }

  bool same_support(const Model& a, const Model& b) const {
    if (a.size() != b.size()) return false;
    std::vector<int> x(a.atoms), y(b.atoms);
    std::sort(x.begin(), x.end());
    std::sort(y.begin(), y.end());
    return x == y;
  }

  // Settles another model: roughly, and to the end where it may be better than the first.
  void finish(const Model& first, double shortfall = MAX_SHORTFALL_NATS) {
    climb(std::max(tolerance(model.size()), ROUGH_TOL_NATS));
    if (!(score(model) > score(first) - shortfall) || !admits(first, model)) return;
    if (same_support(model, first)) return;
    climb(tolerance(model.size()));
    while (shrink(tolerance(model.size()))) {}
    while (!same_support(model, first) && score(model) <= score(first) + set_.tol &&
           exchange(tolerance(model.size())))
      climb(tolerance(model.size()));
  }

  // With less noise the model explains more and passes through richer supports.
  void lower_noise(double fraction) {
    const double beta = model.beta, low = std::max(fraction / beta, set_.noise_floor);
    const int most =
        model.size() + static_cast<int>(std::min<double>(std::max<double>(MIN_ADDED, ADDED_SHARE * model.size()), MAX_ADDED));
    model.beta = 1.0 / low;
    load(model);
    near_factor_ = std::max(1.0, model.beta / beta);
    climb(std::max(tolerance(model.size()), ROUGH_TOL_NATS), true, most, INF, 5);
    near_factor_ = 1.0;
    model.beta = beta;
    load(model);
    relax(5, false, ROUGH_TOL_NATS, INF);
  }

  double draw() {
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(random_ >> 11) / 9007199254740992.0;
  }

  // Places in the model, by content.
  std::vector<int> places_in_order() const {
    std::vector<int> places(model.size());
    for (int i = 0; i < model.size(); i++) places[i] = i;
    std::sort(places.begin(), places.end(),
              [&](int i, int j) { return order_[model.atoms[i]] < order_[model.atoms[j]]; });
    return places;
  }

  void drop_random() {
    std::vector<unsigned char> gone(model.size());
    for (int i : places_in_order()) gone[i] = draw() < DROPPED_SHARE;
    leave_out(gone);
  }

  // Without the atom that so many others are worth less than, and one exchange.
  void drop_weak(int rank) {
    std::vector<int> places = places_in_order();
    if (rank >= model.size()) return;
    auto worth = [&](int i) { return std::rint(-1e6 * gain_delete(i)); };  // further digits are rounding
    std::stable_sort(places.begin(), places.end(), [&](int i, int j) { return worth(i) < worth(j); });
    std::vector<unsigned char> gone(model.size());
    gone[places[rank]] = 1;
    leave_out(gone);
    relax(10, false, ROUGH_TOL_NATS, INF);
    scan();
    exchange(ROUGH_TOL_NATS);
  }

  // Anew, with the noise held below that of the model until no addition gains.
  void from_nothing() {
    const double beta = model.beta;
    model.atoms.clear();
    model.alpha.clear();
    model.beta = std::min(beta / LOW_NOISE[0], 1.0 / set_.noise_floor);
    load(model);
    climb(ROUGH_TOL_NATS, true, static_cast<int>(CROWDED * N_), INF, 5);
    model.beta = beta;
    load(model);
    relax(5, false, ROUGH_TOL_NATS, INF);
  }

  // The model that was found from the first where it gains half a nat for each function more, or in a thorough search
  // at all; nats beyond these, -inf where the first stays.
  double judge(Model& first, bool admitted) {
    const int more = std::max(0, functions(model) - functions(first));
    const double gained = admitted ? score(model) - score(first) : -INF, paid = gained - NATS_A_FUNCTION * more;
    recording_ = true;
    if (!((set_.thorough ? gained : paid) > set_.tol)) {
      model = std::move(first);
      scan();
      return -INF;
    }
    record(RESTART, -1);
    ascend();
    return paid;
  }

  // What a move and a search from there find, where it is better; one that loses the digits is given up.
  template <class Move>
  double restart(Move move, double shortfall = MAX_SHORTFALL_NATS) {
    Model first = model;
    recording_ = false;
    bool found = true;
    try {
      move();
      finish(first, shortfall);
    } catch (const Stop& stop) {
      if (stop.why != NO_DIGITS) throw;
      near_factor_ = 1.0;
      found = false;
    }
    return judge(first, found && admits(first, model));
  }

  // From every atom that is no near-copy of one before it, by the updates of MacKay, T01 eq. (16) and (18), or of
  // expectation-maximisation, T01 eq. (48) and (50), which keeps more atoms.
  void every_atom(Update update) {
    std::vector<int> places(M_), keep;
    for (int j = 0; j < M_; j++) places[j] = j;
    std::sort(places.begin(), places.end(), [&](int a, int b) { return order_[a] < order_[b]; });
    std::fill(crowd_.begin(), crowd_.end(), 0);
    for (int j : places) {
      if (unit_[j] == 0.0 || crowd_[j]) continue;
      gram(j);
      for (int i : nears_[slot_[j]]) crowd_[i]++;
      keep.push_back(j);
    }
    std::sort(keep.begin(), keep.end());
    model.atoms = keep;
    model.alpha.clear();
    // not quite equal, so that on symmetric data the atoms' content and not rounding decides which of two stays
    for (int j : keep) model.alpha.push_back((1.0 + 1e-3 * static_cast<double>(order_[j]) / M_) / N_);
    if (!set_.fixed_noise) model.beta = 1.0 / set_.noise_start;
    load(model);
    for (int turn = 0; turn < BACKWARD_UPDATES[update]; turn++) {
      double free = N_;
      std::vector<unsigned char> gone(model.size());
      for (int i = 0; i < model.size(); i++) {
        const double gamma = 1.0 - shrinkage(i);
        free -= gamma;
        const double square = model.v[i] * model.v[i];  // alpha mu^2
        model.alpha[i] *= update == EM ? 1.0 / (square + shrinkage(i)) : gamma / square;
        gone[i] = !(model.alpha[i] < MOST_ALPHA && model.alpha[i] > 0.0);
      }
      if (!set_.fixed_noise && update == EM)
        model.beta = 1.0 / std::max((model.residual + (N_ - free) / model.beta) / N_, set_.noise_floor);
      else if (!set_.fixed_noise && free > 0.0)
        model.beta = 1.0 / std::max(model.residual / free, set_.noise_floor);
      for (double& alpha : model.alpha) alpha = std::max(alpha, model.beta / MAX_SPREAD);
      leave_out(gone);
    }
    finish_rough();
  }

  void capped_noise() {
    model.atoms.clear();
    model.alpha.clear();
    model.beta = 1.0 / set_.noise_start;
    load(model);
    climb(std::max(set_.tol, ROUGH_TOL_NATS), false, static_cast<int>(CAPPED_ATOMS + CAPPED_SHARE * N_), set_.noise_start, 5);
    relax(5, false, ROUGH_TOL_NATS, INF);
    finish_rough();
    lower_noise(LOW_NOISE[0]);
  }

  void finish_rough() { climb(std::max(tolerance(model.size()), ROUGH_TOL_NATS)); }

  // Without two atoms whose weights the data hardly tell apart: the best of some pairs.
  void exchange_pairs() {
    while (true) {
      const int k = model.size();
      std::vector<std::pair<double, std::pair<int, int>>> pairs;
      for (int i = 0; i < k; i++)
        for (int j = i + 1; j < k; j++) {
          const double b = model.B[static_cast<size_t>(j) * k + i];
          const double correlation = std::fabs(b) / std::sqrt(shrinkage(i) * shrinkage(j));
          if (correlation > PAIR_CORRELATION) pairs.push_back({correlation, {i, j}});
        }
      if (pairs.empty() || k > MAX_RESTARTED) return;
      auto ranks = [&](const std::pair<int, int>& p) {
        return std::minmax(order_[model.atoms[p.first]], order_[model.atoms[p.second]]);
      };
      std::sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
        const double p = std::rint(a.first * 1e6), q = std::rint(b.first * 1e6);
        if (p != q) return p > q;
        const std::pair<long long, long long> x = ranks(a.second), y = ranks(b.second);
        return x < y;
      });
      Model first = model, best;
      recording_ = false;
      for (size_t turn = 0; turn < pairs.size() && turn < MAX_PAIRS; turn++) {
        model = first;
        std::vector<unsigned char> gone(k);
        gone[pairs[turn].second.first] = gone[pairs[turn].second.second] = 1;
        leave_out(gone);
        relax(100, false, ROUGH_TOL_NATS, INF);
        scan();
        while (exchange(ROUGH_TOL_NATS)) {}
        finish(first);
        if (best.atoms.empty() || score(model) > score(best) + set_.tol) best = model;
      }
      model = best;
      scan();
      if (!(judge(first, admits(first, best)) >= MIN_REPEAT_GAIN_NATS)) return;
    }
  }

  // ---------------------------------------------------------------- the end

  // s and q of an atom of the model without itself, TF03 eq. (19).
  void own_statistics(int i, double& s, double& q) const {
    const double b = shrinkage(i), alpha = model.alpha[i];
    s = alpha * (1.0 - b) / b;
    q = model.v[i] * std::sqrt(alpha) / b;
  }

  // Gain of the best precision of an atom of the model (TF03 A.3), which is infinite where it leaves.
  double gain_reestimate(int i, double& best) const {
    double s, q;
    own_statistics(i, s, q);
    best = model.alpha[i];
    if (!(s > 0.0)) return 0.0;  // the data carry no information about it
    auto value = [&](double alpha) { return 0.5 * (std::log(alpha) - std::log(alpha + s) + q * q / (alpha + s)); };
    best = q * q > s ? s * s / (q * q - s) : INF;
    return (std::isfinite(best) && best > 0.0 ? value(best) : 0.0) - value(model.alpha[i]);
  }

  // Precisions at their optimum to the last digits; where Newton steps crawl the best single one moves.
  void sharpen() {
    relax(100, false, 0.0, INF);
    const int turns = model.size() + 10;
    for (int turn = 0; turn < turns; turn++) {
      double most = 0.0, alpha = 0.0;
      int best = -1;
      for (int i = 0; i < model.size(); i++) {
        double optimum;
        const double gained = gain_reestimate(i, optimum);
        if (gained > most) {
          most = gained;
          best = i;
          alpha = optimum;
        }
      }
      if (best < 0 || most <= 0.1 * tolerance(model.size())) return;
      const Model before = model;
      if (std::isfinite(alpha)) {
        model.alpha[best] = alpha;
        load(model);
      } else {
        std::vector<unsigned char> gone(model.size());
        gone[best] = 1;
        leave_out(gone);
      }
      if (!(model.objective > before.objective)) {
        model = before;
        return;
      }
      relax(10, false, 0.0, INF);
    }
  }

  // What an atom in place of another, or of none, gains in truth.
  double truly(int leaving, int entering, double alpha) {
    const Model before = model;
    double gained = -INF;
    try {
      if (leaving < 0) {
        model.atoms.push_back(entering);
        model.alpha.push_back(alpha);
      } else {
        model.atoms[leaving] = entering;
        model.alpha[leaving] = alpha;
      }
      load(model);
      gained = score(model) - score(before);
    } catch (const Stop& stop) {
      if (stop.why != NO_DIGITS) throw;
      sure = false;
    }
    model = before;
    return gained;
  }

  // The largest gain of a single move; what scans promise above tol is verified, for it may be rounding.
  void certify() {
    const double tol = tolerance(model.size());
    std::fill(blocked_.begin(), blocked_.end(), 0);
    scan();
    largest = 0.0;
    sure = true;
    const double close = model.beta * std::max(CLOSE, 10.0 * LEAST_S_SHARE * model.widest);
    for (int j = 0; j < M_; j++) sure = sure && (in_[j] || unit_[j] == 0.0 || S_[j] > close);
    if (set_.exchange)  // `offers` leaves copies out: which of two is better their inner products do not tell
      for (int atom : model.atoms) {
        const double* own = gram(atom);
        for (int j = 0; j < M_; j++) sure = sure && (in_[j] || std::fabs(own[j]) <= COPY);
      }
    for (int turn = 0; turn < MAX_REFUTED; turn++) {
      const int j = candidate(-INF);
      if (j < 0) break;
      const double price = set_.prior == FLAT || j == bias_ ? 0.0 : cost(functions(model));
      double gained = gain_of(Q_[j] * Q_[j] / S_[j]) - price;
      if (gained > tol) gained = truly(-1, j, best_alpha(S_[j], Q_[j]));
      largest = std::max(largest, gained);
      if (gained > tol || !(gain_of(Q_[j] * Q_[j] / S_[j]) - price > tol)) break;
      blocked_[j] = 1;
    }
    std::fill(blocked_.begin(), blocked_.end(), 0);
    for (int i = 0; i < model.size(); i++) {
      double alpha;
      const double refund = set_.prior == FLAT || model.atoms[i] == bias_ ? 0.0 : cost(functions(model) - 1);
      largest = std::max({largest, gain_reestimate(i, alpha), gain_delete(i) + refund});
    }
    if (set_.exchange)
      for (const Offer& offer : offers()) {
        double gained = offer.gain;
        if (gained > tol) gained = truly(offer.leaving, offer.entering, best_alpha(offer.S, offer.Q));
        largest = std::max(largest, gained);
        if (gained > tol) break;
      }
    if (std::isnan(largest)) largest = INF;
  }

  void conclude() {
    for (int turn = 0; turn < MAX_RETRIES; turn++) {
      sharpen();
      record(REESTIMATE, -1);
      certify();
      if (largest <= tolerance(model.size()) || turn + 1 == MAX_RETRIES) return;
      ascend();  // the sharper model may have other moves
    }
  }

  void search() {
    ascend();
    start_again();
    conclude();
  }

  void start_again() {
    if (!set_.restarts) return;
    const double risen = 1.0 / (model.beta * set_.noise_start);
    const bool few = model.size() <= FEW_SHARE * N_, likely = few && (risen > 1.0 || M_ <= QUICK_DICTIONARY);
    if (M_ <= SHORT_DICTIONARY && (set_.fixed_noise || likely))
      restart([&] { every_atom(MACKAY); });
    else if (!set_.fixed_noise && risen > MAX_NOISE_RISE)
      restart([&] { capped_noise(); });
    lower_noise_in_turn();
    const bool many_starts = set_.thorough && M_ <= QUICK_DICTIONARY;
    if (many_starts) restart([&] { every_atom(EM); }, SMALL_SHORTFALL_NATS);
    if (set_.exchange) exchange_pairs();
    if (!many_starts) return;
    restart([&] { from_nothing(); }, SMALL_SHORTFALL_NATS);
    for (int turn = 0; turn < RANDOM_STARTS; turn++) restart([&] { drop_random(); }, SMALL_SHORTFALL_NATS);
    for (int turn = 0; turn < WITHOUT_ONE; turn++) restart([&] { drop_weak(turn); }, SMALL_SHORTFALL_NATS);
  }

  // Restarts with less noise, each while it gains; beyond the usual number without random atoms too.
  void lower_noise_in_turn() {
    int failed = 0;
    const int most_failures = set_.thorough ? MAX_FAILURES : 1;
    const bool usual = set_.restarts <= USUAL_RESTARTS;
    for (int turn = 0; turn < set_.restarts;) {
      if (usual && (model.size() > MAX_RESTARTED || failed >= most_failures)) return;
      const double gained = restart([&] {
        if (turn < 3) return lower_noise(LOW_NOISE[turn]);
        drop_random();
        if (turn % 2) lower_noise(LOW_NOISE[1]);
      });
      failed = gained >= MIN_RESTART_GAIN_NATS ? 0 : failed + 1;
      if (!(gained >= MIN_REPEAT_GAIN_NATS)) turn++;
    }
  }
};

}  // namespace relvec
