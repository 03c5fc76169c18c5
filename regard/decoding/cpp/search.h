// Greedy decoding and beam search, as `regard/decoding/beam.py` defines them, with the whole network inside.
//
// The keys and values of a token stay where they were written. A hypothesis has a list of slots, one for each of its
// tokens, which says where. When a beam is reordered, these lists are copied, and not the cache.
#pragma once

#include <memory>

#include "layers.h"

namespace regard {

// Python fills in the following two structs.

struct Network {
    Shape shape;
    Stack encoder;  // depth 0: a decoder without an encoder
    Stack decoder;
    Embedding source_embedding;
    Embedding target_embedding;
    Linear output;
};

struct Task {
    int32_t inputs;
    int32_t beam;
    int32_t kept;              // finished hypotheses that are kept for each input
    int32_t cache_length;      // tokens that a hypothesis can have, the prompt included
    const int32_t* sources;    // ids of all sources, one after the other; not used without an encoder
    const int32_t* source_lengths;
    const int32_t* prompts;    // ids that are read before the first token is generated
    const int32_t* prompt_lengths;
    const int32_t* max_tokens;
    const int32_t* end;
    int32_t end_count;
    const int32_t* suppressed;
    int32_t suppressed_count;
    int32_t min_tokens;
    float length_penalty;      // the exponent
    int32_t prefix;            // whether the tokens of a prompt see the whole prompt
};

struct Finished {
    std::vector<int32_t> tokens;
    float score;
    float penalised;
};

struct Candidate {
    float score;
    int32_t hypothesis;
    int32_t token;
};

class Search {
  public:
    Search(const Network& network, const Task& task, Threads& threads)
        : network_(network), shape_(network.shape), task_(task), engine_{shape_, &threads, work_} {
        panels_ = (network.output.outputs + PANEL - 1) / PANEL;
        slots_ = task.inputs * task.beam;
        int64_t cached = static_cast<int64_t>(slots_) * task.cache_length * shape_.key_value_size();
        cache_.resize(network.decoder.depth);
        for (auto& layer : cache_) layer.reset(new float[cached]);  // not filled: most of it is never touched
        for (int input = 0; input < task.inputs; ++input) {
            live_.push_back({input, {{{}, {}, 0.0f}}});
            finished_.emplace_back();
        }
        read_sources();
        read_prompts();
    }

    // Generate one token for every input that is not finished; return how many inputs are left.
    int step(Threads& threads) {
        engine_.threads = &threads;
        if (length_ > 0) feed_latest();
        ++length_;
        std::vector<Live> remaining;
        advance();
        for (auto& input : live_)
            if (!stopped(input)) remaining.push_back(std::move(input));
        live_ = std::move(remaining);
        return static_cast<int>(live_.size());
    }

    const std::vector<Finished>& finished(int input) const { return finished_[input]; }

  private:
    struct Hypothesis {
        std::vector<int32_t> tokens;  // that were generated
        std::vector<int32_t> slots;   // of all its tokens in the cache, those of the prompt first
        float score;
    };

    struct Live {
        int32_t input;
        std::vector<Hypothesis> hypotheses;
    };

    // One token that is to be computed.
    struct Row {
        int32_t id;
        int32_t position;
        int32_t input;
        int32_t slot;          // of the cache, where its keys and values are written
        int32_t visible;       // number of its own tokens that it sees
        const int32_t* slots;  // where they are
    };

    void read_sources() {
        const Stack& stack = network_.encoder;
        if (!stack.depth) return;
        std::vector<int32_t> positions, sentence;
        for (int input = 0; input < task_.inputs; ++input) {
            first_source_.push_back(static_cast<int32_t>(positions.size()));
            for (int i = 0; i < task_.source_lengths[input]; ++i) {
                positions.push_back(i);
                sentence.push_back(input);
            }
        }
        int rows = static_cast<int>(positions.size()), width = shape_.width;
        std::vector<float> x(static_cast<int64_t>(rows) * width);
        engine_.embed(network_.source_embedding, rows, task_.sources, positions.data(), x.data());
        const int query_size = shape_.query_size(), key_size = shape_.key_size();
        const int64_t stride = query_size + shape_.key_value_size();
        for (int l = 0; l < stack.depth; ++l) {
            const Layer& layer = stack.layers[l];
            engine_.convert(x.data(), rows, width, engine_.norm_before(layer.self_norm));
            float* projected = Workspace::of(work_.projected, rows, stride);
            engine_.multiply_into(layer.self.query_key_value, rows, projected);
            for (int row = 0; row < rows; ++row) engine_.rotate_row(projected + row * stride, positions[row]);
            float* attended = Workspace::of(work_.attended, rows, shape_.attended_size());
            double visible = static_cast<double>(rows) / task_.inputs;
            engine_.attend_all(rows, visible, projected, stride, attended, [&](int row) {
                const float* keys = projected + first_source_[sentence[row]] * stride + query_size;
                return std::tuple(
                    task_.source_lengths[sentence[row]], [=](int s) { return keys + s * stride; },
                    [=](int s) { return keys + s * stride + key_size; });
            });
            engine_.convert(attended, rows, shape_.attended_size());
            engine_.add_residual(layer.self.out, layer.self_norm, rows, x.data());
            engine_.feed_forward(layer, rows, x.data());
        }
        const Norm* norm = stack.final_norm.weight ? &stack.final_norm : nullptr;
        engine_.convert(x.data(), rows, width, norm);
        source_keys_values_.resize(network_.decoder.depth);
        for (int l = 0; l < network_.decoder.depth; ++l) {
            source_keys_values_[l].resize(static_cast<int64_t>(rows) * shape_.key_value_size());
            engine_.multiply_into(network_.decoder.layers[l].cross.key_value, rows, source_keys_values_[l].data());
        }
    }

    void read_prompts() {
        std::vector<Row> rows;
        std::vector<int> last;
        const int32_t* ids = task_.prompts;
        for (auto& live : live_) {
            int length = task_.prompt_lengths[live.input], slot = live.input * task_.beam;
            auto& slots = live.hypotheses[0].slots;
            slots.assign(length, slot);  // shared by all hypotheses of the input
            for (int i = 0; i < length; ++i)
                rows.push_back({*ids++, i, live.input, slot, task_.prefix ? length : i + 1, slots.data()});
            last.push_back(static_cast<int>(rows.size()) - 1);
        }
        compute(rows, last);
    }

    // Compute the latest token of every live hypothesis.
    void feed_latest() {
        std::vector<Row> rows;
        std::vector<int> all;
        for (auto& live : live_)
            for (size_t h = 0; h < live.hypotheses.size(); ++h) {
                auto& [tokens, slots, score] = live.hypotheses[h];
                int position = static_cast<int>(slots.size()), slot = live.input * task_.beam + static_cast<int>(h);
                slots.push_back(slot);
                all.push_back(static_cast<int>(rows.size()));
                rows.push_back({tokens.back(), position, live.input, slot, position + 1, slots.data()});
            }
        compute(rows, all);
    }

    // Run the decoder on these rows, and compute the logits after the `wanted` ones.
    void compute(const std::vector<Row>& rows, const std::vector<int>& wanted) {
        const Stack& stack = network_.decoder;
        int count = static_cast<int>(rows.size()), width = shape_.width;
        std::vector<int32_t> ids, positions;
        double visible = 0;
        for (const auto& row : rows) {
            ids.push_back(row.id);
            positions.push_back(row.position);
            visible += row.visible;
        }
        visible /= count;
        float* x = Workspace::of(x_, count, width);
        engine_.embed(network_.target_embedding, count, ids.data(), positions.data(), x);
        for (int l = 0; l < stack.depth; ++l) {
            const Layer& layer = stack.layers[l];
            self_attention(layer, cache_[l].get(), rows, visible, x);
            if (stack.has_cross) cross_attention(layer, source_keys_values_[l], rows, x);
            engine_.feed_forward(layer, count, x);
        }
        float* last = x;
        if (wanted.size() < rows.size()) {
            last = Workspace::of(work_.attended, wanted.size(), width);
            for (size_t i = 0; i < wanted.size(); ++i)
                std::copy_n(x + static_cast<int64_t>(wanted[i]) * width, width, last + static_cast<int64_t>(i) * width);
        }
        compute_logits(last, static_cast<int>(wanted.size()));
    }

    void self_attention(const Layer& layer, float* cache, const std::vector<Row>& rows, double visible, float* x) {
        int count = static_cast<int>(rows.size());
        const int query_size = shape_.query_size(), key_size = shape_.key_size(), cached = shape_.key_value_size();
        const int64_t stride = query_size + cached;
        engine_.convert(x, count, shape_.width, engine_.norm_before(layer.self_norm));
        float* projected = Workspace::of(work_.projected, count, stride);
        engine_.multiply_into(layer.self.query_key_value, count, projected);
        for (int i = 0; i < count; ++i) {
            engine_.rotate_row(projected + i * stride, rows[i].position);
            int64_t place = static_cast<int64_t>(rows[i].slot) * task_.cache_length + rows[i].position;
            std::copy_n(projected + i * stride + query_size, cached, cache + place * cached);
        }
        float* attended = Workspace::of(work_.attended, count, shape_.attended_size());
        engine_.attend_all(count, visible, projected, stride, attended, [&](int i) {
            auto key = [=, slots = rows[i].slots, keys = cache, length = task_.cache_length](int s) {
                return keys + (static_cast<int64_t>(slots[s]) * length + s) * cached;
            };
            return std::tuple(rows[i].visible, key, [=](int s) { return key(s) + key_size; });
        });
        engine_.convert(attended, count, shape_.attended_size());
        engine_.add_residual(layer.self.out, layer.self_norm, count, x);
    }

    void cross_attention(const Layer& layer, const std::vector<float>& keys_values, const std::vector<Row>& rows,
                         float* x) {
        int count = static_cast<int>(rows.size());
        const int64_t stride = shape_.key_value_size();
        const int key_size = shape_.key_size();
        engine_.convert(x, count, shape_.width, engine_.norm_before(layer.cross_norm));
        float* queries = Workspace::of(work_.projected, count, shape_.query_size());
        engine_.multiply_into(layer.cross.query_key_value, count, queries);
        float* attended = Workspace::of(work_.attended, count, shape_.attended_size());
        double visible = task_.source_lengths[rows[0].input];
        engine_.attend_all(count, visible, queries, shape_.query_size(), attended, [&](int i) {
            const float* keys = keys_values.data() + first_source_[rows[i].input] * stride;
            return std::tuple(
                task_.source_lengths[rows[i].input], [=](int s) { return keys + s * stride; },
                [=](int s) { return keys + s * stride + key_size; });
        });
        engine_.convert(attended, count, shape_.attended_size());
        engine_.add_residual(layer.cross.out, layer.cross_norm, count, x);
    }

    // Logits, and for each panel of 64 their maximum and the sum of their exponentials.
    void compute_logits(const float* x, int rows) {
        const Norm* norm = network_.decoder.final_norm.weight ? &network_.decoder.final_norm : nullptr;
        engine_.convert(x, rows, shape_.width, norm);
        int64_t outputs = network_.output.outputs;
        float* logits = Workspace::of(logits_, rows, outputs);
        float* maxima = Workspace::of(maxima_, rows, panels_);
        float* sums = Workspace::of(sums_, rows, panels_);
        multiply(*engine_.threads, shape_.type, network_.output, work_.inputs, rows,
                 [&](int row, int first, int count, float* values) {
                     for (int i = count; i < PANEL; ++i) values[i] = MINUS_INFINITY;
                     float largest = panel_maximum(values, PANEL), sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                     for (int i = 0; i < PANEL; ++i) sum += exponential(values[i] - largest);
                     int64_t panel = static_cast<int64_t>(row) * panels_ + first / PANEL;
                     maxima[panel] = largest;
                     sums[panel] = sum;
                     std::copy_n(values, count, logits + row * outputs + first);
                 });
        log_totals_.resize(rows);
        engine_.each_row(rows, panels_ * 0.5, [&](int row) {
            const int64_t first = static_cast<int64_t>(row) * panels_;
            const float *largest = maxima + first, *part = sums + first;
            float best = panel_maximum(largest, panels_), total = 0.0f;
#pragma omp simd reduction(+ : total)
            for (int i = 0; i < panels_; ++i) total += part[i] * exponential(largest[i] - best);
            log_totals_[row] = best + std::log(total);
            forbid(row);
        });
    }

    static float panel_maximum(const float* values, int count) {
        float largest = MINUS_INFINITY;
#pragma omp simd reduction(max : largest)
        for (int i = 0; i < count; ++i) largest = std::max(largest, values[i]);
        return largest;
    }

    // Set the logits of tokens that may not be generated to minus infinity: they count in the softmax only. Of several
    // end tokens the likeliest remains: all give the same text.
    void forbid(int row) {
        float* logits = logits_.data() + static_cast<int64_t>(row) * network_.output.outputs;
        auto hide = [&](int id) {
            logits[id] = MINUS_INFINITY;
            int first = id / PANEL * PANEL, count = std::min(PANEL, network_.output.outputs - first);
            maxima_[static_cast<int64_t>(row) * panels_ + id / PANEL] = panel_maximum(logits + first, count);
        };
        for (int i = 0; i < task_.suppressed_count; ++i) hide(task_.suppressed[i]);
        int likeliest = 0;
        for (int i = 1; i < task_.end_count; ++i)
            if (logits[task_.end[i]] > logits[task_.end[likeliest]]) likeliest = i;
        bool too_early = length_ < task_.min_tokens;  // the next token is number length_, counted from 0
        for (int i = 0; i < task_.end_count; ++i)
            if (too_early || (task_.beam > 1 && i != likeliest)) hide(task_.end[i]);
    }

    // The best continuations of the hypotheses whose logits start at `row`, best first; of equal ones the first.
    void find_candidates(const Live& live, int row, std::vector<Candidate>& best) const {
        const size_t wanted = task_.beam == 1 ? 1 : 2 * task_.beam;
        auto enters = [&](float score) { return score > (best.size() < wanted ? MINUS_INFINITY : best.back().score); };
        auto is_worse = [](float score, const Candidate& other) { return score > other.score; };
        best.clear();
        for (size_t h = 0; h < live.hypotheses.size(); ++h, ++row) {
            const float score = live.hypotheses[h].score, log_total = log_totals_[row];
            const float* maxima = maxima_.data() + static_cast<int64_t>(row) * panels_;
            const float* logits = logits_.data() + static_cast<int64_t>(row) * network_.output.outputs;
            if (std::isnan(log_total)) best.insert(best.begin(), {log_total, static_cast<int32_t>(h), 0});
            for (int panel = 0; panel < panels_; ++panel) {
                if (!enters(score + (maxima[panel] - log_total))) continue;
                int first = panel * PANEL, last = std::min(first + PANEL, network_.output.outputs);
                for (int token = first; token < last; ++token) {
                    float total = score + (logits[token] - log_total);
                    if (!enters(total)) continue;
                    auto place = std::upper_bound(best.begin(), best.end(), total, is_worse);  // after equal ones
                    best.insert(place, {total, static_cast<int32_t>(h), token});
                    if (best.size() > wanted) best.pop_back();
                }
            }
        }
        while (best.size() < wanted) best.push_back({MINUS_INFINITY, 0, 0});
    }

    // Extend every input's hypotheses by one token.
    void advance() {
        float penalty = penalty_of(length_);
        int row = 0;
        std::vector<Candidate> candidates;
        for (auto& live : live_) {
            find_candidates(live, row, candidates);
            row += static_cast<int>(live.hypotheses.size());
            bool at_limit = length_ >= task_.max_tokens[live.input];
            std::vector<Hypothesis> next, hopeless;
            for (size_t c = 0; c < candidates.size(); ++c) {
                const auto& candidate = candidates[c];
                const auto& parent = live.hypotheses[candidate.hypothesis];
                const int32_t* last_end = task_.end + task_.end_count;
                bool ends = at_limit || std::find(task_.end, last_end, candidate.token) != last_end;
                if (std::isnan(candidate.score)) failed(live.input, candidate.score);
                if (ends && c < static_cast<size_t>(task_.beam)) finish(live.input, parent, candidate, penalty);
                auto& list = ends ? hopeless : next;
                if (list.size() < static_cast<size_t>(task_.beam)) {
                    Hypothesis hypothesis = parent;
                    hypothesis.tokens.push_back(candidate.token);
                    hypothesis.score = ends ? MINUS_INFINITY : candidate.score;
                    list.push_back(std::move(hypothesis));
                }
            }
            for (size_t i = 0; next.size() < static_cast<size_t>(task_.beam) && i < hopeless.size(); ++i)
                next.push_back(std::move(hopeless[i]));
            live.hypotheses = std::move(next);
        }
    }

    void finish(int input, const Hypothesis& parent, const Candidate& last, float penalty) {
        if (!(last.score > MINUS_INFINITY)) return;
        auto& kept = finished_[input];
        float penalised = last.score / penalty;
        auto after = std::upper_bound(kept.begin(), kept.end(), penalised,
                                      [](float value, const Finished& other) { return value > other.penalised; });
        Finished entry{parent.tokens, last.score, penalised};
        entry.tokens.push_back(last.token);
        kept.insert(after, std::move(entry));
        if (kept.size() > static_cast<size_t>(task_.kept)) kept.pop_back();
    }

    // Logits that are not numbers: the input's only result is one whose score is not a number either.
    void failed(int input, float score) { finished_[input] = {{{}, score, score}}; }

    float penalty_of(int tokens) const {
        return std::pow((5.0f + static_cast<float>(tokens)) / 6.0f, task_.length_penalty);
    }

    // Whether no live hypothesis can still enter the kept ones: its score can only fall, and the penalty is largest at
    // the maximum length.
    bool stopped(const Live& live) const {
        const auto& kept = finished_[live.input];
        if (length_ >= task_.max_tokens[live.input] || (!kept.empty() && std::isnan(kept[0].score))) return true;
        float best = MINUS_INFINITY;
        for (const auto& hypothesis : live.hypotheses) best = std::max(best, hypothesis.score);
        bool full = kept.size() == static_cast<size_t>(task_.kept);
        float worst = full ? kept.back().penalised : MINUS_INFINITY;
        return best / penalty_of(task_.max_tokens[live.input]) <= worst;
    }

    const Network& network_;
    const Shape& shape_;
    Task task_;
    Workspace work_;
    Engine engine_;
    int panels_, slots_, length_ = 0;
    std::vector<Live> live_;
    std::vector<std::vector<Finished>> finished_;
    std::vector<std::unique_ptr<float[]>> cache_;         // per layer: [slots, cache_length, keys and values]
    std::vector<std::vector<float>> source_keys_values_;  // per layer: [tokens of all sources, keys and values]
    std::vector<int32_t> first_source_;                   // of each input, the row of its first token
    std::vector<float> x_, logits_, maxima_, sums_, log_totals_;
};

}  // namespace regard
