// SNLI: ESIM over word vectors and ELMo.
local data_files = import 'data.libsonnet';
local elmo = import 'elmo.libsonnet';
local words = import 'words.libsonnet';

{
  // JSON lines files called `train`, `dev` and `test` in a folder.
  files:: data_files.files,

  // The weights of all trained layers except word vectors and the biLM.
  weight_matrices::
    '^(text_encoder\\.encoder|projection|inference_encoder|output_feedforward|label_projection)\\..*weight',

  // Keras's initial values, as in AllenNLP's config: the paper's model is older than AllenNLP.
  keras_initializer:: {
    regexes: [
      ['(linear_layers|label_projection).*weight', { type: 'xavier_uniform' }],
      ['(linear_layers|label_projection).*bias', { type: 'zero' }],
      ['encoder\\..*weight_ih', { type: 'xavier_uniform' }],
      ['encoder\\..*weight_hh', { type: 'orthogonal' }],
      ['encoder\\..*bias_ih', { type: 'zero' }],
      ['encoder\\..*bias_hh', { type: 'lstm_hidden_bias' }],
    ],
  },

  // word_vectors: a file or URL in GloVe's text format, of width word_dim; null starts them at random, and
  // trains them.
  experiment(
    data,
    elmo_part,
    word_vectors,
    word_dim=300,
    hidden_dim=300,
    dropout=0.5,
    attention_dropout=0.5,
    initializer=self.keras_initializer,  // null: PyTorch's own
    lowercase=false,
    weight_l2=0.0001,
    batch_size=32,
    learning_rate=0.0004,
    num_epochs=75,
    patience=5,
  ):: {
    local layer = { num_layers: 1, hidden_dims: hidden_dim, activations: 'relu' },
    local rnn = { type: 'lstm', hidden_size: hidden_dim, bidirectional: true },

    dataset_reader: {
      type: 'elmo_snli',
      token_indexers: words.indexers(lowercase) + elmo.indexers,
    },

    model: {
      type: 'elmo_snli',
      // Widths follow from the embedder and from ELMo's placement.
      text_encoder: {
        text_field_embedder: {
          token_embedders: words.embedders(word_vectors, word_dim, trainable=word_vectors == null),
        },
        elmo: elmo_part,
        encoder: rnn,
        dropout: dropout,
        variational_dropout: true,
      },
      projection: layer,
      inference_encoder: rnn,
      output_feedforward: layer,
      attention_dropout: attention_dropout,
      inference_dropout: dropout,
      dropout: dropout,
      [if initializer != null then 'initializer']: initializer,
      regularizer: elmo.regularizer(0.001) + {
        regexes+: [[$.weight_matrices, { type: 'l2', alpha: weight_l2 }]],
      },
    },

    trainer: {
      optimizer: { type: 'adam', lr: learning_rate },
      // Halved after each epoch that is not the best so far on dev.
      learning_rate_scheduler: { type: 'reduce_on_plateau', mode: 'max', factor: 0.5, patience: 0 },
      grad_norm: 5.0,
    },
  } + words.vocabulary(word_vectors) + data_files.experiment(data, num_epochs, patience, '+accuracy')
    + data_files.loaders(batch_size, ['premise', 'hypothesis']),
}
