// SQuAD: Clark and Gardner's simplification of BiDAF over word vectors, character convolutions and ELMo.
local data_files = import 'data.libsonnet';
local elmo = import 'elmo.libsonnet';
local words = import 'words.libsonnet';

{
  files:: data_files.files,

  // word_vectors: a file or URL in GloVe's text format, of width word_dim, which stay as they are; null starts
  // vectors at random, and trains them.
  // rnn_size: of all GRUs, in each direction; the layers between them are twice as wide.
  // max_passage_tokens: of passages in training, null for whole passages. Validation has whole ones always.
  experiment(
    data,
    elmo_part,
    word_vectors,
    word_dim=300,
    character_dim=20,
    num_character_filters=100,
    character_filter_widths=[5],
    character_min_count=49,
    rnn_size=90,
    dropout=0.2,
    max_passage_tokens=null,
    batch_size=45,
    optimizer={ type: 'adadelta', lr: 1.0, rho: 0.95, eps: 1e-8 },
    average_decay=0.999,
    num_epochs=24,
    patience=null,
  ):: {
    local gru = { type: 'gru', hidden_size: rnn_size, bidirectional: true },
    local reader = {
      type: 'elmo_squad',
      token_indexers: words.indexers(lowercase=false)
                      + words.character_indexers(character_filter_widths)
                      + elmo.indexers,
    },

    dataset_reader: reader { max_passage_tokens: max_passage_tokens },
    validation_dataset_reader: reader,
    vocabulary: { min_count: { token_characters: character_min_count } },

    model: {
      type: 'elmo_squad',
      text_encoder: {
        text_field_embedder: {
          token_embedders: words.embedders(word_vectors, word_dim, trainable=(word_vectors == null))
                           + words.character_embedders(
                             character_dim, num_character_filters, character_filter_widths, dropout
                           ),
        },
        elmo: elmo_part,
        // Widths follow from the embedders and from ELMo's placement.
        encoder: gru,
        dropout: dropout,
        variational_dropout: true,
      },
      projection: { num_layers: 1, hidden_dims: 2 * rnn_size, activations: 'relu' },
      self_attention_encoder: gru,
      start_encoder: gru,
      end_encoder: gru,
      max_answer_tokens: 17,
      dropout: dropout,
      initializer: {
        regexes: [
          // Anchored at the start of each name, so that the biLM is not matched.
          ['^(text_encoder\\.|self_attention\\.|start_|end_)encoder\\._module\\.weight_', {
            type: 'elmo_truncated_normal',
            std: 0.05,
          }],
          ['^(text_encoder\\.|self_attention\\.|start_|end_)encoder\\._module\\.bias_', { type: 'zero' }],
          ['^(self_attention\\.)?projection.*weight$|^(start|end)_score\\.weight$', { type: 'xavier_uniform' }],
          ['^(self_attention\\.)?projection.*bias$', { type: 'zero' }],
        ],
      },
      regularizer: elmo.regularizer(0.0),
    },

    trainer: {
      optimizer: optimizer,
      // Evaluation and the archive have the averages of the weights.
      moving_average: { type: 'exponential', decay: average_decay },
    },
  } + words.vocabulary(word_vectors) + data_files.experiment(data, num_epochs, patience, '+f1')
    + data_files.loaders(batch_size, ['passage']),
}
